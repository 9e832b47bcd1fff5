//! Waits until the machine that has a volume open is gone, and takes the volume over.
//!
//! [`Standby::take_over`] polls the volume's device: one small read of the block of multi-mount
//! protection (MMP), and one question for the owner of the device's lock, every [`POLL`]. Once
//! [`Watch`] finds the owner gone, the standby opens the device, which fences the owner, and then
//! the volume, which replays its journal. Of several standbys of one volume, one opens it and the
//! others keep waiting.

#![forbid(unsafe_code)]

mod error;
mod force;
mod log;
mod poll_result;
mod probe;
mod standby;
mod watch;

pub use error::StandbyError;
pub use force::{Forced, force};
pub use poll_result::{Mmp, PollResult};
pub use standby::{Standby, Step};
pub use watch::{Gone, POLL, Verdict, Watch};

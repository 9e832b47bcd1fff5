//! Multi-mount protection (MMP, feature `mmp`): keeps two machines from writing to one volume.
//!
//! One block of the volume names the machine that has the volume open for writing, its *owner*. The
//! owner changes a number in the block at intervals. Another machine that wants to write waits
//! until the number has stayed the same for long enough. Block, numbers and waits are the same as
//! in the kernel's ext4 and in e2fsprogs.
//!
//! This module claims a volume, also from a living owner, and keeps and releases it. The module
//! `volume` decides which opens need the protection. `docs/design/mmp.md` has the protocol.

mod claim;
mod heartbeat;
mod lease;
mod leased_device;
mod leased_queue;
mod live;
mod location;
mod options;
mod protection;
mod state;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod time;
mod wait;

pub(crate) use live::live;
pub use options::{MmpOptions, OwnerEvidence};
pub(crate) use protection::Protection;
pub use state::{MmpState, MmpUse, SILENT_AFTER, read};

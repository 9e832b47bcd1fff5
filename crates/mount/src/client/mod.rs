//! Actions of other processes on a mount: they unmount it, change its options, or find out whether
//! its server still has the image open.

mod dead;
mod elsewhere;
mod foreign;
mod image_lock;
mod last_state;
mod patience;
mod process_end;
mod remount;
mod server_process;
mod standby;
mod sync;
mod target;
mod umount_call;
mod unmount;

pub use dead::remove_dead_mounts;
pub use elsewhere::is_held_elsewhere;
pub use image_lock::{is_being_closed, lock_holder};
pub use remount::{RemountError, remount};
pub use standby::StandbyClaim;
pub use umount_call::{UnmountError, call_umount};
pub use unmount::{Unmount, unmount};

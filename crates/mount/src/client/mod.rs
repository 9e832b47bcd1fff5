//! What other processes do to a mount: unmount it, change its options, or find out whether its server still has the image.

mod image_lock;
mod process_end;
mod remount;
mod standby;
mod unmount;

pub use image_lock::is_being_closed;
pub use remount::{RemountError, remount};
pub use standby::StandbyClaim;
pub use unmount::{UnmountError, unmount};

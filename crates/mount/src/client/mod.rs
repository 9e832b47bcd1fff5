//! What other processes do to a mount: unmount it, or change its options.

mod remount;
mod unmount;

pub use remount::{RemountError, remount};
pub use unmount::{UnmountError, unmount};

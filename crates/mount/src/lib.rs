//! Mounts an ext4 volume on a directory with FUSE, so that every program can use it without kernel
//! code that reads the image.
//!
//! [`Mounted::new`] mounts a volume. [`Mounted::serve`] answers the kernel's requests until the
//! directory is unmounted and then closes the volume. Other processes end the mount with
//! [`unmount()`], change it with [`remount()`], and read its counters with
//! [`report()`](report::report).
#![deny(unsafe_code)]

mod client;
mod connection;
mod dispatch;
#[cfg(all(any(test, fuzzing), not(shuttle)))]
pub mod fuzz;
mod in_flight;
mod inodes;
mod kernel_cache;
#[cfg(shuttle)]
pub mod models;
mod options;
mod protocol;
pub mod report;
pub mod runtime_dir;
mod server;
mod session;
mod switch;
mod threads;
mod transport;

pub use client::{
    RemountError, StandbyClaim, Unmount, UnmountError, call_umount, is_being_closed, is_held_elsewhere,
    lock_holder, remount, remove_dead_mounts, unmount,
};
pub use connection::{control, mounts};
pub use options::{Atime, Cache, MountOptions, OptionError};
pub use server::{Access, Reopen, Reopening};
pub use session::{MountError, MountState, Mounted};
pub use transport::Transport;

//! Mounts an ext4 volume on a directory, with FUSE: every program uses it then, and no kernel code reads the image.
//!
//! [`Mounted::new`] mounts, [`Mounted::serve`] answers the kernel until the directory is unmounted and then closes the
//! volume. [`unmount()`] ends it from outside, [`report()`](report::report) asks how it goes.
#![forbid(unsafe_code)]

mod answer;
mod attr;
mod attributes;
mod buffers;
mod caller;
mod capabilities;
pub mod control;
mod crew;
mod data;
mod dirs;
mod failure;
mod file_handles;
mod files;
mod flags;
mod front;
mod handles;
mod invalidation;
mod kernel_pages;
mod lanes;
#[cfg(shuttle)]
pub mod models;
pub mod mounts;
mod names;
mod nodes;
mod null;
mod options;
mod pace;
mod privileges;
mod readahead;
mod remount;
pub mod report;
mod server;
mod session;
mod sync;
mod under_way;
mod unmount;
mod volume_ioctls;
mod workers;
mod xattrs;

pub use null::serve_null;
pub use options::{Atime, Cache, MountOptions, OptionError};
pub use remount::{RemountError, remount};
pub use session::{MountError, Mounted};
pub use unmount::{UnmountError, unmount};

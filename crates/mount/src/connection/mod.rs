//! The FUSE connection to the kernel: what both sides agree on, how far the kernel reads ahead, and where the kernel lists
//! and controls it.

mod capabilities;
pub mod control;
pub mod mounts;
mod read_ahead;

pub(crate) use capabilities::{allow_idmapped_mounts, background_requests, negotiate};
pub(crate) use mounts::{connection_of, mount_on};
pub(crate) use read_ahead::extend_read_ahead;

//! The FUSE connection to the kernel: the negotiated capabilities, the kernel's read-ahead, and the
//! kernel's lists and controls of connections.

mod capabilities;
pub mod control;
pub mod mounts;
mod read_ahead;

pub(crate) use capabilities::{allow_idmapped_mounts, background_requests, negotiate};
pub(crate) use mounts::{connection_of, mount_on};
pub(crate) use read_ahead::extend_read_ahead;

//! Volumes as a whole: made, opened and closed, and with another policy.

#[path = "../common/mod.rs"]
mod common;

mod lifecycle;
mod mkfs;
mod mkfs_device;
mod policies;

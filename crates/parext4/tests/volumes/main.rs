//! Volumes as a whole: made, opened and closed, and with another policy.

#[path = "../common/mod.rs"]
mod common;

mod damaged;
mod lifecycle;
mod metadata_cache;
mod mkfs;
mod mkfs_device;
mod policies;
mod recorded;
mod shared_commits;

//! Volumes as a whole: made, opened and closed, and with another policy.

mod damaged;
mod files;
mod lifecycle;
mod metadata_cache;
mod mkfs;
mod mkfs_device;
mod policies;
mod recorded;
mod shared_commits;

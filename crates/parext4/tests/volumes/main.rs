//! Volumes as a whole: mkfs, opening and closing, errors, and policies.

mod damaged;
mod files;
mod formats;
mod lazy_times;
mod lifecycle;
mod metadata_cache;
mod mkfs;
mod mkfs_device;
mod policies;
mod quota;
mod recorded;
mod shared_commits;
mod std_like;
mod threads;
mod verity;

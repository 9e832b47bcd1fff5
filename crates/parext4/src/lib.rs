//! ext4 in user space, parallel inside a single file.
//!
//! [`mkfs()`] makes a volume on a [`Device`], [`Volume::open_device`] opens one that mke2fs, the kernel or parext4
//! has made. Everything takes `&self` and may be called from any number of threads; threads that use one
//! [`DirectFile`] wait for each other only where their byte ranges overlap.
//!
//! The design, with the invariants I1 to I10 that comments cite, is in `docs/design.md`.
#![forbid(unsafe_code)]

mod admission;
mod allocator;
mod block_io;
mod body;
mod clock;
mod dirty_files;
mod engine;
pub mod error;
mod extent_map;
#[cfg(shuttle)]
pub mod fault;
#[cfg(not(shuttle))]
mod fault;
mod file;
mod findings;
mod health;
mod inode;
mod journal;
mod layout;
mod machine;
mod memory;
mod meta;
pub mod mkfs;
#[cfg(shuttle)]
pub mod models;
mod namespace;
mod node;
mod operation;
mod page_cache;
mod policy;
mod sleep_timer;
mod stats;
mod stripes;
mod sync;
mod threads;
mod volume;
mod writeback;
mod xattr;

pub use allocator::without_reserved_blocks;
pub use error::{Error, Result};
pub use file::{Atomicity, File, FileCursor, OpenOptions, SyncMode};
pub use file::{Completion, DirectFile, FileExtent, IoFlags, IoQueue, IoRequest, IoWaker};
pub use journal::EmptiedLog;
#[cfg(shuttle)]
pub use journal::{EnterResult, Gate, Permit};
pub use memory::MetadataCacheStats;
pub use mkfs::{MkfsOptions, mkfs};
pub use namespace::{DirEntry, DirItem, Metadata, NewInode, ReadDir, RenameMode, SetAttributes, Special};
pub use node::{Node, NodeId};
pub use operation::{Operation, Reason};
pub use page_cache::PageCacheStats;
pub use parext4_device as device;
pub use parext4_device::{AlignedBuf, Device, DeviceOptions, FileDevice, MemDevice};
pub use parext4_format::InodeNo;
pub use parext4_format::inode::{FileType, InodeFlags, Timestamp};
pub use policy::{Policy, ResearchOptions, SplitAt};
pub use stats::{Admissions, Explanation, Party, Stats};
pub use volume::{
    Info, OnError, RecordedError, RecordedErrors, Replayed, Space, Volume, VolumeOptions, Walk,
};
pub use volume::{needs_recovery, open_volume_device, replay_journal};
pub use xattr::XattrMode;

/// The example in the README, run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

//! ext4 in user space, parallel inside a single file: reads and writes the Linux ext4 format
//! without root or kernel code.
//!
//! # Opening a volume
//! [`Volume::open`] opens an image file or a block device that mke2fs, the kernel or parext4 has
//! formatted, and [`mkfs()`] formats one. [`VolumeOptions`] selects read-only access, cache sizes
//! and intervals. [`Volume::open_device`] accepts any [`Device`], such as a [`MemDevice`] or one of
//! your own. The crate `parext4-storage` opens volumes on NBD servers and on Ceph by URL, and in
//! partitions of a disk. An image is open in one process for writing, or in several for reading.
//!
//! ```
//! use parext4::{DeviceOptions, FileDevice, MkfsOptions, Volume, mkfs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("disk.img");
//! mkfs(&FileDevice::open(&image, &DeviceOptions::new().create(64 << 20))?, &MkfsOptions::new())?;
//! let volume = Volume::open(&image)?;
//! volume.create_dir("/notes", 0o755)?;
//! volume.write("/notes/today", "remember the milk")?;
//! assert_eq!(volume.read_to_string("/notes/today")?, "remember the milk");
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Files and directories
//! A [`Volume`] has the functions of [`std::fs`] as methods: [`open_file`](Volume::open_file) with
//! [`OpenOptions`], [`create_file`](Volume::create_file), [`read`](Volume::read),
//! [`write`](Volume::write), [`read_dir`](Volume::read_dir), [`walk`](Volume::walk),
//! [`rename`](Volume::rename), [`metadata`](Volume::metadata) and more. Paths start at the volume's
//! root. An [`InodeRef`] is an inode that was resolved once; its methods name children instead of
//! paths, and have extended attributes and flags. `with_credentials` on a volume, an inode or a
//! file sets on whose behalf that handle acts ([`Credentials`]).
//!
//! A [`File`] reads and writes any offset and length through a page cache. [`Read`](std::io::Read),
//! [`Write`](std::io::Write) and [`Seek`](std::io::Seek) move a position that clones share, as in
//! [`std::fs::File`]; [`File::cursor`] gives another one.
//!
//! The module [`server`] has what only a file system server needs.
//!
//! # Direct I/O and queues
//! A [`DirectFile`], from [`Volume::open_direct`], moves data between the caller's buffer and the
//! device without a page cache. Offsets and lengths are multiples of
//! [`sector_size`](DirectFile::sector_size). An [`IoQueue`], from [`Volume::io_queue`], keeps many
//! direct operations of one thread in flight. `File`s and `DirectFile`s of one file see each
//! other's writes.
//!
//! # What threads can rely on
//! - All methods take `&self`, and all handles are [`Send`] and [`Sync`]. An `IoQueue` is [`Send`]
//!   and belongs to one thread at a time.
//! - Operations on one file wait for each other only where their byte ranges overlap. Appends run
//!   in parallel too, each at an offset of its own.
//! - A read returns all or nothing of a write that runs at the same time, unless the file was
//!   opened with [`Atomicity::Page`]. A later read sees what a write has written that has returned.
//! - A [`Policy`] other than the default, for comparison with the kernel's ext4, promises less.
//!
//! # Durability
//! - All changes of metadata go through the journal. After a crash each operation on names,
//!   attributes and sizes has happened as a whole or not at all, and a block never shows its old
//!   contents. [`allocate`](DirectFile::allocate), [`punch_hole`](DirectFile::punch_hole) and
//!   [`zero_range`](DirectFile::zero_range) may have happened in part.
//! - [`sync_data`](File::sync_data) and [`sync_all`](File::sync_all) make a file durable,
//!   [`Volume::sync`] everything. Otherwise data is written back, and metadata committed, some
//!   seconds after the change.
//! - [`Volume::close`] makes everything durable and reports errors. Dropping the last handle closes
//!   the volume too, but cannot report them.
//! - A failed write stops the volume: further changes fail with [`Error::Stopped`], and the journal
//!   recovers the volume at the next open.
//!
//! # Untrusted images
//! This crate has no unsafe code, and checks every structure that it reads. A bad one is an
//! [`Error::Corrupt`] that names the structure, field and place. Open an untrusted image with
//! [`VolumeOptions::read_only`]: nothing is written to it. Limit what you read of a file, because
//! an image can state any size; `examples/untrusted_image.rs` shows how.
//!
//! # Errors
//! [`Error`] has one variant for each meaning. [`Error::to_errno`] returns the errno that a system
//! call would, and an `Error` converts to an [`std::io::Error`] that keeps its text.
//!
//! # Features
//! All are on by default. Without one of them, a volume that needs it is refused, or opened for
//! reading only, with an error that names the volume's feature; the engine then needs fewer crates.
//!
//! - `casefold`: volumes whose directories can ignore case.
//! - `mkfs`: [`mkfs()`] creates volumes.
//! - `sha2`: volumes with files that fs-verity protects, and encrypted ones, whose names it lists.
//!
//! # Examples
//! `examples/` has programs for the common cases: `log_writer` (threads append to one file),
//! `copy_out` (a tree out of an image), `io_queue`, `untrusted_image`, and `tokio` and
//! `tokio_queue` for tasks of an async runtime. A type that one method returns has its example at
//! that method. `docs/design.md` describes how parext4 is built.
#![forbid(unsafe_code)]

mod admission;
mod allocator;
mod block_io;
mod block_map;
mod clock;
mod convert;
mod credentials;
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
mod flush_turn;
mod health;
mod indirect_map;
mod inode;
mod inode_ref;
mod journal;
mod layout;
mod map_update;
mod mapping;
mod memory;
mod memory_limit;
mod meta;
#[cfg(feature = "mkfs")]
pub mod mkfs;
pub mod mmp;
#[cfg(shuttle)]
pub mod models;
mod namespace;
mod operation;
mod page_cache;
mod policy;
mod quota;
mod quota_file;
pub mod server;
mod sleep_timer;
mod stats;
mod stripes;
mod superblock;
mod sync;
mod threads;
mod verity;
mod volume;
mod write_count;
mod writeback;
mod xattr;

pub use block_io::Verity;
pub use clock::Clock;
pub use credentials::Credentials;
pub use error::{Error, Result};
pub use file::{Atomicity, File, FileCursor, FileSize, OpenOptions, SyncMode};
pub use file::{Completion, DirectFile, FileExtent, IoFlags, IoQueue, IoRequest, IoWaker};
pub use inode_ref::{InodeId, InodeRef};
pub use journal::EmptiedLog;
#[cfg(shuttle)]
pub use journal::{EnterResult, Gate, Permit};
pub use memory::MetadataCacheStats;
#[cfg(feature = "mkfs")]
pub use mkfs::{MkfsOptions, mkfs};
pub use namespace::{DirEntry, FileTimes, Metadata, NewInode, ReadDir, RenameMode, SetAttributes, Special};
pub use operation::{Operation, Reason};
pub use page_cache::PageCacheStats;
pub use parext4_device as device;
pub use parext4_device::{AlignedBuf, Device, DeviceOptions, FileDevice, MemDevice};
pub use parext4_format::InodeNo;
pub use parext4_format::inode::{FileType, InodeFlags, Timestamp};
pub use parext4_format::quota::{QuotaKind, QuotaKinds};
pub use parext4_format::verity::HashAlgorithm;
pub use policy::{Policy, ResearchOptions, SplitAt};
pub use stats::{Admissions, Contender, Explanation, Stats};
pub use superblock::{Backups, find_backups};
#[cfg(all(debug_assertions, not(shuttle)))]
#[doc(hidden)]
pub use sync::delay_steps;
pub use volume::{FoundInfo, find_info};
pub use volume::{
    Info, OnError, Quota, QuotaGraces, QuotaLimits, RecordedError, RecordedErrors, Replayed, Space, Volume,
    VolumeOptions, Walk,
};
pub use volume::{is_journal_device, needs_recovery, replay_in_memory, replay_journal};
pub use volume::{open_fitting, open_image};
pub use xattr::{XattrMode, XattrRef};

/// The example in the README, run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

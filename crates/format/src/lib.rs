//! On-disk structures of ext4 and jbd2: parse, check, encode. One file per structure; no I/O.
//!
//! A failed check names the structure, the field and, if known, the inode, block or group
//! ([`FormatError`]). No byte sequence makes a parser panic. Sources: the kernel's
//! `Documentation/filesystems/ext4/` and the e2fsprogs headers.
#![forbid(unsafe_code)]
// Wrong numbers in an image must not wrap silently. Tests cast freely.
#![cfg_attr(not(test), warn(clippy::as_conversions))]
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod bitmap;
mod block_range;
mod block_size;
pub mod casefold;
pub mod checksum;
pub mod convert;
pub mod dir_entry;
mod error;
pub mod extent;
pub mod fast_commit;
pub mod features;
pub mod group_desc;
pub mod hash;
pub mod htree;
pub mod indirect;
pub mod inode;
pub mod jbd2;
pub mod mmp;
pub mod no_key_name;
mod number;
pub mod orphan_file;
pub mod quota;
pub mod superblock;
pub mod verity;
pub mod xattr;

pub use block_range::BlockRange;
pub use block_size::BlockSize;
pub use checksum::ChecksumSeed;
pub use error::{FormatError, Result, write_place};
pub use number::{FileBlock, FsBlock, GroupNo, InodeNo, LogBlock};

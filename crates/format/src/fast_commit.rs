//! Fast commits: the area at the end of the journal in which the kernel logs changes of single
//! inodes and names between two full commits.
//!
//! Source: kernel documentation, "Journal (jbd2)", section "Fast commits", and the behaviour of
//! `fs/ext4/fast_commit.c`. All numbers are little endian. A *fast commit* is a sequence of tags
//! that ends with a tail, which has a checksum of them. The first one begins with a head. A tag
//! does not cross the end of a block, and after a tail the next fast commit begins with the next
//! block.

use crate::checksum::crc32c;
use crate::dir_entry::MAX_NAME;
use crate::error::{FormatError, Result};
use crate::extent::{self, Extent};
use crate::number::{FileBlock, FsBlock, InodeNo};

/// Bytes of `struct ext4_fc_tl`: the type of a tag, and the length of its value.
const TAG_HEADER: usize = 4;
/// Bytes of a directory entry's value before the name.
const NAME_HEADER: usize = 8;
/// Bytes of an inode's value before the inode.
const INODE_HEADER: usize = 4;
/// The shortest inode (`EXT4_GOOD_OLD_INODE_SIZE`).
const MIN_INODE: usize = 128;
/// Bytes of the values that have one length: `struct ext4_fc_add_range`, `ext4_fc_del_range`,
/// `ext4_fc_head`, and the start of a tail's.
const ADD_RANGE_LEN: usize = 16;
const DEL_RANGE_LEN: usize = 12;
const HEAD_LEN: usize = 8;
const TAIL_LEN: usize = 8;

// `fc_tag`
const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// A logged change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file blocks of an extent are mapped to its volume blocks.
    AddRange(InodeNo, Extent),
    /// File blocks are not mapped any more.
    DelRange {
        /// The file.
        ino: InodeNo,
        /// The first file block.
        start: FileBlock,
        /// The number of blocks.
        len: u32,
    },
    /// A new inode got its first name.
    Create(Name),
    /// An inode got a name.
    Link(Name),
    /// An inode lost a name.
    Unlink(Name),
    /// The logged bytes of an inode's fields. They include `i_block`, but the logged ranges define
    /// what the inode maps.
    Inode(InodeNo, Box<[u8]>),
}

/// A name of an inode in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The directory.
    pub parent: InodeNo,
    /// The inode that the entry names.
    pub ino: InodeNo,
    /// The name, of one to [`MAX_NAME`] bytes.
    pub name: Box<[u8]>,
}

/// Reads the blocks of the area in order, and visits the changes of the fast commits that belong to
/// one transaction. It stores no change. Only the tail of a fast commit shows whether its changes
/// count, so a caller scans twice: first to count the changes that do, then to visit them.
#[derive(Debug)]
pub struct Scan {
    /// The number of the transaction that the fast commits belong to.
    tid: u32,
    inode_size: usize,
    crc: u32,
    started: bool,
    /// The number of changes so far.
    changes: u64,
    /// The number of changes in complete fast commits.
    complete: u64,
}

/// A tag and its bytes.
struct Tag<'a> {
    kind: u16,
    /// The header and the value.
    bytes: &'a [u8],
    value: &'a [u8],
}

impl Scan {
    /// Returns a scan for fast commits of transaction `tid`, which follows the last complete one in
    /// the log, on a volume with inodes of `inode_size` bytes.
    #[must_use]
    pub fn new(tid: u32, inode_size: u16) -> Self {
        let (crc, started, changes, complete) = (0, false, 0, 0);
        Self { tid, inode_size: inode_size.into(), crc, started, changes, complete }
    }

    /// Reads the next block, and calls `visit` with the number of each change, counted from 0, and
    /// the change. Returns false if no later block can belong to a fast commit of the transaction.
    ///
    /// # Errors
    /// If the fast commits need a feature that is not known; the error of `visit`.
    pub fn block<E: From<FormatError>>(
        &mut self,
        block: &[u8],
        visit: &mut dyn FnMut(u64, Change) -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        let mut rest = block;
        while let Some(tag) = self.next_tag(rest) {
            if !self.tag(&tag)? {
                return Ok(false);
            }
            if let Some(change) = change(&tag) {
                visit(self.changes, change)?;
                self.changes += 1;
            }
            rest = rest.get(tag.bytes.len()..).unwrap_or_default();
        }
        // Each block ends in a tail or in padding.
        Ok(self.started && rest.len() < TAG_HEADER)
    }

    /// Returns the number of changes in complete fast commits. They are the first ones.
    #[must_use]
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// Returns the tag at the start of `bytes`, or `None` if there is none with a valid length.
    fn next_tag<'a>(&self, bytes: &'a [u8]) -> Option<Tag<'a>> {
        let (kind, len) = (u16_at(bytes, 0)?, usize::from(u16_at(bytes, 2)?));
        let end = TAG_HEADER + len;
        let (bytes, value) = (bytes.get(..end)?, bytes.get(TAG_HEADER..end)?);
        let valid = match kind {
            ADD_RANGE => len == ADD_RANGE_LEN,
            DEL_RANGE => len == DEL_RANGE_LEN,
            CREATE | LINK | UNLINK => (NAME_HEADER + 1..=NAME_HEADER + MAX_NAME).contains(&len),
            INODE => (INODE_HEADER + MIN_INODE..=INODE_HEADER + self.inode_size).contains(&len),
            PAD => true,
            TAIL => len >= TAIL_LEN,
            HEAD => len == HEAD_LEN,
            _ => false,
        };
        valid.then_some(Tag { kind, bytes, value })
    }

    /// Reads a tag. Returns false if it ends the area.
    fn tag(&mut self, tag: &Tag<'_>) -> Result<bool> {
        let number = |at| u32_at(tag.value, at);
        if tag.kind == TAIL {
            // The checksum covers all of the fast commit before it.
            let crc = crc32c(self.crc, &tag.bytes[..TAG_HEADER + 4]);
            self.crc = 0;
            let valid = self.started && number(0) == self.tid && number(4) == crc;
            if valid {
                self.complete = self.changes;
            }
            return Ok(valid);
        }
        if tag.kind == HEAD {
            if number(4) != self.tid {
                return Ok(false);
            }
            if number(0) != 0 {
                let problem = format_args!("{:#x} is not known", number(0));
                return Err(FormatError::new("fast commit", "fc_features", problem));
            }
            self.started = true;
        }
        if !self.started {
            return Ok(false);
        }
        self.crc = crc32c(self.crc, tag.bytes);
        Ok(true)
    }
}

/// Returns the change that a tag logs, or `None` if it logs none.
fn change(tag: &Tag<'_>) -> Option<Change> {
    let value = tag.value;
    let ino = InodeNo(u32_at(value, 0));
    let name = || {
        let (parent, ino) = (ino, InodeNo(u32_at(value, 4)));
        Name { parent, ino, name: value.get(NAME_HEADER..).unwrap_or_default().into() }
    };
    Some(match tag.kind {
        ADD_RANGE => {
            let (len, high) = (u16_at(value, 8).unwrap_or(0), u16_at(value, 10).unwrap_or(0));
            let unwritten = u32::from(len) > extent::MAX_WRITTEN;
            let physical = FsBlock(u64::from(high) << 32 | u64::from(u32_at(value, 12)));
            let len = u32::from(len) - if unwritten { extent::MAX_WRITTEN } else { 0 };
            Change::AddRange(ino, Extent { logical: FileBlock(u32_at(value, 4)), physical, len, unwritten })
        }
        DEL_RANGE => Change::DelRange { ino, start: FileBlock(u32_at(value, 4)), len: u32_at(value, 8) },
        CREATE => Change::Create(name()),
        LINK => Change::Link(name()),
        UNLINK => Change::Unlink(name()),
        INODE => Change::Inode(ino, value.get(INODE_HEADER..).unwrap_or_default().into()),
        _ => return None,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

/// Returns the number at `at`; 0 past the end, where no valid tag has one.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;

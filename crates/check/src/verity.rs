//! The descriptors of files that fs-verity protects, and the size of their Merkle trees. Contents
//! are not verified.

use std::collections::VecDeque;

use parext4_format::inode::{Inode, InodeFlags};
use parext4_format::verity::{self, MerkleTree};
use parext4_format::{FormatError, FsBlock, InodeNo};

use crate::map::{self, Run, Sink};
use crate::problem::Problem;
use crate::volume::Volume;

/// Checks the descriptor of a file with the verity flag, and that its tree has all blocks. The
/// caller has found no error in the map of the file.
pub(crate) fn check(volume: &Volume<'_>, ino: InodeNo, inode: &Inode) {
    // The kernel encrypts the descriptor as it does the contents.
    if inode.flags.contains(InodeFlags::ENCRYPT) {
        return;
    }
    if let Err(error) = try_check(volume, ino, inode) {
        // e2fsck reads no descriptors.
        volume.report(error.of_inode(ino), None);
    }
}

fn wrong(field: &'static str, problem: impl std::fmt::Display) -> FormatError {
    FormatError::new("verity descriptor", field, problem)
}

/// Checks the descriptor. Its size is in the last 4 bytes of the last block; the descriptor ends
/// before them, and begins with a block.
fn try_check(volume: &Volume<'_>, ino: InodeNo, inode: &Inode) -> Result<(), FormatError> {
    let unit = volume.block_size as u64;
    if !inode.flags.contains(InodeFlags::EXTENTS) {
        return Err(wrong("i_flags", "a verity file without extents"));
    }
    let offset = verity::tree_offset(inode.size).ok_or_else(|| wrong("i_size", inode.size))?;
    let mut tail = Tail {
        from: offset / unit,
        most: (verity::MAX_DESCRIPTOR as u64).div_ceil(unit) + 1,
        ..Tail::default()
    };
    map::walk(volume, ino, inode, &mut tail);
    let end = tail.end * unit;
    if end <= offset {
        return Err(wrong("i_size", "no block after the file"));
    }
    let last = tail.read(volume, tail.end - 1..tail.end)?;
    let len = last.last_chunk().map_or(0, |len| u32::from_le_bytes(*len)) as usize;
    let start = (end - 4).checked_sub(len as u64).map(|start| start / unit);
    let start = start.filter(|start| *start >= tail.from && len <= verity::MAX_DESCRIPTOR);
    let start = start.ok_or_else(|| wrong("size", format_args!("{len} bytes")))?;
    let bytes = tail.read(volume, start..tail.end)?;
    let tree = MerkleTree::parse(&bytes[..len], inode.size, volume.block_size.ilog2())?;
    let tree_blocks = tree.len().div_ceil(unit);
    let mapped = tail.mapped - (tail.end - start);
    if tail.from + tree_blocks > start || mapped < tree_blocks {
        return Err(wrong("data_size", format_args!("the tree has {mapped} of {tree_blocks} blocks")));
    }
    Ok(())
}

/// The blocks of a file after its contents: their number, and the location of the last ones.
#[derive(Default)]
struct Tail {
    /// The file block at which the tree begins.
    from: u64,
    /// The largest number of last blocks whose locations are kept.
    most: u64,
    /// The number of written blocks from `from` on.
    mapped: u64,
    /// The file block after the last one.
    end: u64,
    runs: VecDeque<Run>,
}

impl Tail {
    /// Reads file blocks whose locations are kept.
    fn read(&self, volume: &Volume<'_>, blocks: std::ops::Range<u64>) -> Result<Vec<u8>, FormatError> {
        let (mut buf, mut bytes) = (volume.buffer(1), Vec::new());
        for logical in blocks {
            let run = self.runs.iter().find(|run| (run.logical..run.logical + run.len).contains(&logical));
            let run = run.ok_or_else(|| wrong("block", format_args!("file block {logical} is missing")))?;
            let block = run.physical + (logical - run.logical);
            volume
                .try_read(block, &mut buf)
                .map_err(|error| wrong("block", error).in_block(FsBlock(block)))?;
            bytes.extend_from_slice(&buf);
        }
        Ok(bytes)
    }
}

impl Sink for Tail {
    /// Accepts every node: the pass over the inodes has found each node once.
    fn node(&mut self, _: u64) -> bool {
        true
    }

    fn data(&mut self, run: Run) {
        let end = run.logical + run.len;
        self.end = end;
        if run.unwritten || end <= self.from {
            return;
        }
        self.mapped += end - run.logical.max(self.from);
        self.runs.push_back(run);
        while self.runs.front().is_some_and(|run| run.logical + run.len + self.most < end) {
            self.runs.pop_front();
        }
    }

    /// Does nothing: the pass over the inodes has reported the error.
    fn wrong(&mut self, _: FormatError, _: Problem) {}
}

//! Fast commits that the kernel left: reads their area, and logs the transaction that replaces
//! them.
//!
//! The caller interprets the changes, and computes the blocks that they change. parext4 writes no
//! fast commits.
//!
//! The fast commits belong to the transaction after the last complete one of the log, and are valid
//! only until the log has that transaction. So the replay may be interrupted at any write:
//!
//! 1. The caller has written the blocks of the log to their home locations, and flushed.
//! 2. [`log_replayed`] makes the log begin at its first block, where that transaction has no block,
//!    and flushes. The fast commits are still valid.
//! 3. It writes the transaction with all blocks that the fast commits change, in the way of a
//!    commit. From then on, a recovery replays the transaction and ignores the fast commits.
//! 4. The caller writes the blocks to their home locations, and empties the log.

use std::io::IoSlice;
use std::ops::Range;

use parext4_device::{AlignedBuf, Device};
use parext4_format::fast_commit::{Change, Scan};
use parext4_format::jbd2::{self, JournalIncompat, JournalSuperblock};
use parext4_format::{FsBlock, LogBlock};

use super::log::{Content, Log, LogMap};
use super::log_stream::LogStream;
use super::log_walk::before;
use super::requests::{BlockWrite, write_sorted};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::sync::Arc;

/// The fast commits of one transaction, in the journal. Each use reads them again, so even a full
/// area needs only the memory of one read request.
#[derive(Debug)]
pub(crate) struct FastCommits<'a> {
    map: &'a LogMap,
    area: Range<LogBlock>,
    tid: u32,
    inode_size: u16,
    /// The number of changes.
    count: u64,
}

impl<'a> FastCommits<'a> {
    /// Returns the fast commits of transaction `tid`, the one after the last complete one of the
    /// log.
    ///
    /// # Errors
    /// If the area cannot be read, or has a feature that is not known.
    pub(crate) fn find(
        map: &'a LogMap,
        superblock: &JournalSuperblock,
        tid: u32,
        inode_size: u16,
    ) -> Result<Self> {
        let area = if superblock.start() == 0 { 0..0 } else { superblock.fast_commit_blocks() };
        let area = LogBlock(area.start)..LogBlock(area.end);
        let mut found = Self { map, area, tid, inode_size, count: 0 };
        found.count = found.scan(&mut |_, _| Ok(()))?;
        Ok(found)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Calls `each` with the changes, in order.
    ///
    /// # Errors
    /// The error of `each`; a failed read.
    pub(crate) fn each(&self, mut each: impl FnMut(Change) -> Result<()>) -> Result<()> {
        self.scan(&mut |nth, change| if nth < self.count { each(change) } else { Ok(()) }).map(drop)
    }

    /// Calls `visit` with all changes, also of fast commits that are not complete. Returns the
    /// number of changes in complete fast commits.
    fn scan(&self, visit: &mut dyn FnMut(u64, Change) -> Result<()>) -> Result<u64> {
        let mut stream = LogStream::new(self.map, [self.area.clone()]);
        let mut scan = Scan::new(self.tid, self.inode_size);
        while let Some((_, bytes)) = stream.read_next()?
            && scan.block(bytes, visit)?
        {}
        Ok(scan.complete())
    }
}

/// Writes transaction `tid` with `contents` into a log whose transactions are all at their home
/// locations, and makes it durable. Until then, fast commits of `tid` stay valid.
///
/// # Errors
/// [`Error::Unsupported`] if the log is too short for the transaction, or its format cannot express
/// the block numbers; a failed write or flush.
pub(crate) fn log_replayed(
    device: &Arc<dyn Device>,
    map: &LogMap,
    superblock: &mut JournalSuperblock,
    tid: u32,
    contents: &[(FsBlock, Arc<AlignedBuf>)],
    clock: Clock,
) -> Result<()> {
    let mut log = Log::new(Arc::clone(device), Arc::new(map.clone()), superblock, clock);
    let (needed, room) = (log.len_of(contents.len()), superblock.log_end() - superblock.first());
    if needed >= room {
        return Err(Error::Unsupported(format!(
            "fast commits that change {} blocks, with a log of {room} blocks; run e2fsck",
            contents.len()
        )));
    }
    let last = contents.iter().map(|(number, _)| number.get()).max().unwrap_or_default();
    if last > u64::from(u32::MAX) && !superblock.incompat().contains(JournalIncompat::BIT64) {
        return Err(Error::Unsupported(format!(
            "fast commits that change block {last}, with a log of 32-bit numbers; run e2fsck"
        )));
    }
    erase_from(map, superblock, tid)?;
    superblock.set_start(superblock.first());
    superblock.set_sequence(tid);
    let mut block = AlignedBuf::zeroed(map.block_size as usize);
    superblock.encode(&mut block);
    write(map, map.superblock, &block)?;
    flush(map)?;
    let contents: Vec<Content<'_>> = contents.iter().map(|(number, bytes)| (*number, bytes)).collect();
    log.write_blocks(tid.into(), &[], &contents).map(drop)
}

/// Overwrites the log blocks of incomplete transactions from `tid` on, so that recovery cannot
/// mistake them for a part of the transaction that is written now.
fn erase_from(map: &LogMap, superblock: &JournalSuperblock, tid: u32) -> Result<()> {
    let zeros = Arc::new(AlignedBuf::zeroed(map.block_size as usize));
    let mut stale: Vec<BlockWrite> = Vec::new();
    let mut stream = LogStream::new(map, [LogBlock(superblock.first())..LogBlock(superblock.log_end())]);
    while let Some((log, bytes)) = stream.read_next()? {
        if jbd2::header(bytes).is_some_and(|(_, sequence)| !before(sequence, tid)) {
            stale.push((map.place(log)?.0, Arc::clone(&zeros)));
        }
    }
    stale.sort_unstable_by_key(|&(offset, _)| offset);
    write_sorted(&map.device, "erasing old blocks of the journal", &stale)?;
    if stale.is_empty() { Ok(()) } else { flush(map) }
}

fn write(map: &LogMap, log: LogBlock, block: &AlignedBuf) -> Result<()> {
    let (offset, _) = map.place(log)?;
    map.device.write_at(offset, &[IoSlice::new(block)]).map_err(|e| Error::device("writing the journal", e))
}

fn flush(map: &LogMap) -> Result<()> {
    map.device.flush().map_err(|e| Error::device("flushing the journal", e))
}

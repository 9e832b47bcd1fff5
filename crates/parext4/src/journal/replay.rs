//! Replay: writes the transactions that an interrupted writer (parext4 or the kernel) left in the
//! log to their home locations.
//!
//! This module decides which logged blocks are written, and in which order. The caller decides
//! where they are written (the device, or memory on a read-only volume) and flushes. The module
//! `log_walk` reads and checks the log.
//!
//! 1. Read the log up to its last complete transaction. Note where each logged block is, and which
//!    copies have a bad checksum.
//! 2. Keep the last copy of each block, and drop the blocks that the transaction of this copy, or a
//!    later one, revokes.
//! 3. Check that no copy of a block that is not revoked has a bad checksum, and that no block
//!    belongs to the journal.
//! 4. Write the last copies, each block once, sorted by their numbers, with many requests in
//!    flight.
//!
//! Steps 1 and 4 read the log. They need 32 bytes of memory for each logged block, 8 MiB for blocks
//! that are read ahead, and in step 4 at most 32 MiB for blocks that are written together.
//!
//! Invariant: nothing is written unless steps 1 to 3 found the log correct.
//!
//! Source: kernel documentation, "Journal (jbd2)", and the behaviour of `fs/jbd2/recovery.c`.

use std::io::IoSliceMut;

use parext4_device::{AlignedBuf, Device};
use parext4_format::jbd2::{self, JournalSuperblock};
use parext4_format::{FsBlock, LogBlock};

use super::log::{LogExtent, LogMap};
use super::log_index::{LogIndex, Newest};
use super::log_stream::LogStream;
use super::log_walk::{Transactions, before};
use super::requests::{BlockWrite, write_sorted};
use crate::error::{Error, Result};
use crate::sync::Arc;

/// The results of reading a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Sequence number for the next transaction.
    pub next_sequence: u32,
    /// Number of complete transactions in the log.
    pub transactions: u32,
    /// Number of blocks that a replay writes.
    pub blocks: u64,
    /// True if the log may contain blocks of later transactions, which do not count.
    pub has_later: bool,
}

/// Reads and checks the journal's superblock.
///
/// # Errors
/// If the superblock cannot be read, is corrupt, or needs a journal feature that parext4 lacks
/// ([`Error::Unsupported`]).
pub(crate) fn read_superblock(map: &LogMap) -> Result<JournalSuperblock> {
    let mut bytes = AlignedBuf::zeroed(map.block_size as usize);
    let (offset, _) = map.place(map.superblock)?;
    map.device
        .read_at(offset, &mut [IoSliceMut::new(&mut bytes)])
        .map_err(|e| Error::device("reading the journal superblock", e))?;
    let superblock = JournalSuperblock::parse(&bytes)?;
    let blocks = map.extents.iter().map(|extent| u64::from(extent.len)).sum();
    superblock.check(map.block_size, blocks)?;
    if let Some(feature) = superblock.unsupported() {
        return Err(Error::Unsupported(format!("journal feature {feature}")));
    }
    Ok(superblock)
}

/// Reads and checks the log. Returns the last copy of each logged block that is not revoked. `end`
/// is the number of blocks of the volume's device: an online resize logs blocks past the end of the
/// volume before it logs the superblock.
///
/// # Errors
/// If the log cannot be read or is corrupt, or has blocks past `end` or of the journal itself.
pub(crate) fn read_log(
    map: &LogMap,
    superblock: &JournalSuperblock,
    end: u64,
) -> Result<(LogIndex, Recovered)> {
    if superblock.start() == 0 {
        let next_sequence = superblock.sequence();
        let found = Recovered { next_sequence, transactions: 0, blocks: 0, has_later: false };
        return Ok((LogIndex::new(map, superblock, Vec::new()), found));
    }
    let Transactions { count, ends_at_bad, blocks, revokes } = Transactions::read(map, superblock)?;
    let mut index = LogIndex::new(map, superblock, blocks);
    index.revoke(&revokes)?;
    let own = OwnBlocks::new(map);
    for (block, sequence) in index.blocks() {
        let problem = if block.get() >= end {
            "out of range"
        } else if own.contains(block) {
            // Writing such a block would change the log while it is read.
            "the journal's own"
        } else {
            continue;
        };
        return Err(Error::corrupt(format_args!(
            "journal: transaction {sequence} writes block {block}, {problem}"
        )));
    }
    let next_sequence = superblock.sequence().wrapping_add(count);
    let found = Recovered { next_sequence, transactions: count, blocks: index.len(), has_later: ends_at_bad };
    Ok((index, found))
}

/// Writes the blocks of a log to their home locations on `device`. Does not flush.
///
/// # Errors
/// A failed read or write; corruption, if the log has changed since it was read.
pub(crate) fn replay(device: &Arc<dyn Device>, block_size: u32, log: LogIndex) -> Result<()> {
    log.each_batch(|blocks| write_home(device, block_size, blocks))
}

/// Writes blocks, which are sorted by their numbers, to their home locations on `device`. Does not
/// flush.
///
/// # Errors
/// A failed write.
pub(crate) fn write_home(device: &Arc<dyn Device>, block_size: u32, blocks: &[Newest]) -> Result<()> {
    let at_home = |(block, bytes): &Newest| (block.get() * u64::from(block_size), Arc::clone(bytes));
    let writes: Vec<BlockWrite> = blocks.iter().map(at_home).collect();
    write_sorted(device, "replaying the journal", &writes)
}

/// Returns the newest sequence number in a log that is not replayed, or the next one of an empty
/// log.
///
/// The next transaction must get a greater number, so that recovery does not mistake blocks of the
/// old log for blocks that follow that transaction.
///
/// # Errors
/// If the log cannot be read.
pub(crate) fn newest_sequence(map: &LogMap, superblock: &JournalSuperblock) -> Result<u32> {
    let oldest = superblock.sequence();
    if superblock.start() == 0 {
        return Ok(oldest);
    }
    let mut newest = oldest;
    let mut stream = LogStream::new(map, [LogBlock(superblock.first())..LogBlock(superblock.log_end())]);
    while let Some((_, bytes)) = stream.read_next()? {
        if let Some((_, sequence)) = jbd2::header(bytes)
            && before(newest, sequence)
            && before(oldest, sequence)
        {
            newest = sequence;
        }
    }
    Ok(newest)
}

/// The blocks of the volume that belong to the journal, as sorted, disjoint ranges `(start, end)`.
/// Empty if the journal is on a device of its own.
struct OwnBlocks(Vec<(u64, u64)>);

impl OwnBlocks {
    fn new(map: &LogMap) -> Self {
        let range = |extent: &LogExtent| {
            let start = extent.physical.get();
            (start, start.saturating_add(extent.len.into()))
        };
        let mut ranges: Vec<_> = map.extents.iter().filter(|_| !map.external).map(range).collect();
        ranges.sort_unstable();
        Self(ranges)
    }

    fn contains(&self, block: FsBlock) -> bool {
        let at = self.0.partition_point(|&(_, end)| end <= block.get());
        self.0.get(at).is_some_and(|&(start, _)| start <= block.get())
    }
}

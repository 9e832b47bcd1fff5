//! Replay: writes the transactions that an interrupted writer (parext4 or the kernel) left in the log to their home
//! locations.
//!
//! Responsible for which logged blocks are written and in which order. The caller decides where they are written (the
//! device, or memory on a read-only volume) and flushes. Reading and checking the log is the work of `log_walk`.
//!
//! 1. Find the last complete transaction.
//! 2. Note the numbers of the logged blocks.
//! 3. Collect which of these blocks are revoked.
//! 4. Check every logged block that its own or a later transaction does not revoke.
//! 5. Write these blocks.
//!
//! Each step reads the log, so the memory is about 50 bytes for each logged block, and the blocks that one request reads.
//!
//! Invariant: nothing is written unless steps 1 to 4 found the log correct.
//!
//! Source: kernel documentation, "Journal (jbd2)", and the behaviour of `fs/jbd2/recovery.c`.

use std::io::IoSliceMut;

use parext4_device::AlignedBuf;
use parext4_format::jbd2::{self, JournalSuperblock};
use parext4_format::{FsBlock, LogBlock};

use super::log::{LogExtent, LogMap};
use super::log_walk::{BlockReader, LogWalk, LoggedBlock, before};
use crate::error::{Error, Result};

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Sequence number for the next transaction.
    pub next_sequence: u32,
    /// Number of complete transactions in the log.
    pub transactions: u32,
    /// Number of blocks that were passed to the sink.
    pub blocks: u64,
    /// True if the log may have blocks of later transactions, which do not count.
    pub has_later: bool,
}

/// Reads and checks the journal's superblock.
///
/// # Errors
/// If it cannot be read, is corrupt, or needs a journal feature that parext4 lacks ([`Error::Unsupported`]).
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

/// Passes every logged block that is not revoked to `sink`, in the order of the transactions. `end` is the number of blocks of the volume's
/// device: an online resize logs blocks past the end of the volume before it logs the superblock.
///
/// # Errors
/// If the log is corrupt, if it contains blocks past `end` or of the journal itself, or if `sink` fails. In the
/// first two cases `sink` has not been called.
pub(crate) fn replay(
    map: &LogMap,
    superblock: &JournalSuperblock,
    end: u64,
    sink: &mut dyn FnMut(LoggedBlock<'_>) -> Result<()>,
) -> Result<Recovered> {
    if superblock.start() == 0 {
        let next_sequence = superblock.sequence();
        return Ok(Recovered { next_sequence, transactions: 0, blocks: 0, has_later: false });
    }
    let mut walk = LogWalk::new(map, superblock);
    let own = OwnBlocks::new(map);
    let scan = walk.scan()?;
    let transactions = scan.transactions;
    let mut revokes = walk.logged(transactions)?;
    walk.revokes(transactions, &mut revokes)?;
    walk.data(transactions, &revokes, &mut |LoggedBlock { sequence, tag, .. }| {
        let problem = if tag.block.get() >= end {
            "out of range"
        } else if own.contains(tag.block) {
            // Writing such a block would change the log while it is read.
            "the journal's own"
        } else {
            return Ok(());
        };
        let block = tag.block;
        Err(Error::corrupt(format_args!("journal: transaction {sequence} writes block {block}, {problem}")))
    })?;
    let mut blocks = 0;
    walk.data(transactions, &revokes, &mut |logged| {
        blocks += 1;
        sink(logged)
    })?;
    let next_sequence = superblock.sequence().wrapping_add(transactions);
    Ok(Recovered { next_sequence, transactions, blocks, has_later: scan.ends_at_bad })
}

/// Returns the newest sequence number in a log that is not replayed, or the next one of an empty log.
///
/// The next transaction must get a greater number. Then recovery does not mistake blocks of the old log for blocks that
/// follow that transaction.
///
/// # Errors
/// If the log cannot be read.
pub(crate) fn newest_sequence(map: &LogMap, superblock: &JournalSuperblock) -> Result<u32> {
    let oldest = superblock.sequence();
    if superblock.start() == 0 {
        return Ok(oldest);
    }
    let mut reader = BlockReader::new(map);
    let mut newest = oldest;
    for log in (superblock.first()..superblock.log_end()).map(LogBlock) {
        if let Some((_, sequence)) = jbd2::header(reader.block(log)?)
            && before(newest, sequence)
            && before(oldest, sequence)
        {
            newest = sequence;
        }
    }
    Ok(newest)
}

/// The blocks of the volume that belong to the journal, as sorted, disjoint ranges `(start, end)`. Empty if the journal is on
/// a device of its own.
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

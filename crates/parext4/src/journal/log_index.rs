//! The newest logged contents of blocks of the volume.
//!
//! This module finds these contents, in the log or in memory; `replay` writes them. The index needs
//! 32 bytes for each logged block, whatever the size of the blocks. Of the contents, at most 32 MiB
//! are in memory at a time.
//!
//! Invariant: contents that are read again still have the checksum in their tag, if the journal has
//! checksums.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::ops::Range;

use parext4_device::AlignedBuf;
use parext4_format::jbd2::{self, JournalSuperblock, TagFormat};
use parext4_format::{FsBlock, LogBlock};

use super::log::LogMap;
use super::log_stream::LogStream;
use super::log_walk::{LoggedBlock, RevokeBlock, restore_escaped};
use crate::error::{Error, Result};
use crate::sync::Arc;

/// Limit of the contents in memory, in bytes.
const MAX_LOADED: usize = 32 << 20;

/// The newest contents of a block.
pub(super) type Newest = (FsBlock, Arc<AlignedBuf>);

/// The newest logged copies of blocks.
#[derive(Debug)]
pub(crate) struct LogIndex {
    map: LogMap,
    format: TagFormat,
    seed: u32,
    /// The sequence number of the oldest transaction.
    sequence: u32,
    /// Logged blocks, sorted by block number; each number appears once.
    blocks: Vec<LoggedBlock>,
    kept: HashMap<FsBlock, Arc<AlignedBuf>>,
}

impl LogIndex {
    /// Returns the index of `blocks`, which are in the order of the log.
    pub(super) fn new(map: &LogMap, superblock: &JournalSuperblock, mut blocks: Vec<LoggedBlock>) -> Self {
        // The copies of a block stay in the order of the log, which continues at the first log
        // block after the last one.
        let start = LogBlock(superblock.start());
        blocks.sort_unstable_by_key(|logged| (logged.tag.block, logged.at < start, logged.at));
        blocks.dedup_by(|newer, kept| {
            let is_same = newer.tag.block == kept.tag.block;
            if is_same {
                *kept = LoggedBlock { bad: newer.bad.max(kept.bad), ..*newer };
            }
            is_same
        });
        let (format, seed) = (TagFormat::from(superblock), superblock.checksum_seed());
        let sequence = superblock.sequence();
        Self { map: map.clone(), format, seed, sequence, blocks, kept: HashMap::new() }
    }

    /// Drops the blocks that their own or a later transaction revokes. Ignores records of blocks
    /// that are not in the index: a log can revoke many more blocks than it contains.
    ///
    /// # Errors
    /// A failed read; corruption, also if a copy of a block that no transaction revokes has a bad
    /// checksum.
    pub(super) fn revoke(&mut self, records: &[RevokeBlock]) -> Result<()> {
        let mut stream = LogStream::new(&self.map, ranges(records.iter().map(|record| record.at)));
        for record in records {
            let Some((_, bytes)) = stream.read_next()? else { break };
            for block in jbd2::parse_revoke(bytes, self.format)? {
                if let Ok(at) = self.blocks.binary_search_by_key(&block, |logged| logged.tag.block) {
                    // The records are in the order of the transactions.
                    self.blocks[at].revoked = record.transaction;
                }
            }
        }
        if let Some(bad) = self.blocks.iter().find(|logged| logged.bad > logged.revoked) {
            let (sequence, block) = (self.sequence_of(bad.bad), bad.tag.block);
            let text = format!("journal: transaction {sequence}: block {block} has a bad checksum");
            return Err(Error::corrupt(text));
        }
        self.blocks.retain(|logged| logged.transaction > logged.revoked);
        Ok(())
    }

    /// Returns the number of blocks.
    pub(super) fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Returns the blocks, each with the sequence number of the transaction that logged it last.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (FsBlock, u32)> {
        self.blocks.iter().map(|logged| (logged.tag.block, self.sequence_of(logged.transaction)))
    }

    /// Returns the sequence number of a transaction by its position in the log, counted from 1.
    fn sequence_of(&self, transaction: u32) -> u32 {
        self.sequence.wrapping_add(transaction - 1)
    }

    /// Calls `each` with all blocks and their contents, in batches of at most 32 MiB. The blocks
    /// are sorted by number. Each batch is read in the order of the log.
    ///
    /// # Errors
    /// A failed read; corruption, if the log has changed since it was walked; the error of `each`.
    pub(super) fn each_batch(mut self, mut each: impl FnMut(&[Newest]) -> Result<()>) -> Result<()> {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.sort_unstable_by_key(|logged| logged.at);
        blocks.chunks(self.batch_len()).try_for_each(|batch| {
            let mut newest = self.load(batch)?;
            newest.sort_unstable_by_key(|&(block, _)| block);
            each(&newest)
        })
    }

    /// Loads contents into memory for [`read`](Self::read), at most 32 MiB.
    ///
    /// # Errors
    /// A failed read; corruption, if the log has changed since it was walked.
    pub(crate) fn keep(&mut self) -> Result<()> {
        let mut blocks: Vec<_> = self.blocks.iter().take(self.batch_len()).copied().collect();
        blocks.sort_unstable_by_key(|logged| logged.at);
        self.kept = self.load(&blocks)?.into_iter().collect();
        Ok(())
    }

    /// Returns the number of blocks whose contents may be in memory at a time.
    fn batch_len(&self) -> usize {
        MAX_LOADED / self.map.block_size as usize
    }

    /// Returns the contents of blocks that are sorted by their place in the log.
    fn load(&self, blocks: &[LoggedBlock]) -> Result<Vec<Newest>> {
        let mut stream = LogStream::new(&self.map, ranges(blocks.iter().map(|logged| logged.at)));
        let mut newest = Vec::with_capacity(blocks.len());
        for logged in blocks {
            let Some((_, bytes)) = stream.read_next()? else { break };
            newest.push((logged.tag.block, self.restore(logged, AlignedBuf::from_slice(bytes))?));
        }
        Ok(newest)
    }

    /// Returns the contents of a block of the volume whose log block has these bytes.
    fn restore(&self, logged: &LoggedBlock, mut bytes: AlignedBuf) -> Result<Arc<AlignedBuf>> {
        let LoggedBlock { tag, at, .. } = logged;
        let sequence = self.sequence_of(logged.transaction);
        if !jbd2::tag_checksum_matches(tag, self.format, self.seed, sequence, &bytes) {
            return Err(Error::corrupt(format_args!("journal: log block {at} changed while it was in use")));
        }
        restore_escaped(tag, &mut bytes);
        Ok(Arc::new(bytes))
    }

    /// Returns the newest contents of a block of the volume, or `None` if the index does not have
    /// the block.
    ///
    /// # Errors
    /// A failed read; corruption, if the log has changed since it was walked.
    pub(crate) fn read(&self, block: FsBlock) -> Result<Option<Arc<AlignedBuf>>> {
        let Ok(at) = self.blocks.binary_search_by_key(&block, |logged| logged.tag.block) else {
            return Ok(None);
        };
        if let Some(bytes) = self.kept.get(&block) {
            return Ok(Some(Arc::clone(bytes)));
        }
        let logged = &self.blocks[at];
        let mut bytes = AlignedBuf::zeroed(self.map.block_size as usize);
        let (offset, _) = self.map.place(logged.at)?;
        let read = self.map.device.read_at(offset, &mut [IoSliceMut::new(&mut bytes)]);
        read.map_err(|e| Error::device("reading the journal", e))?;
        self.restore(logged, bytes).map(Some)
    }
}

/// Returns the ranges of consecutive log blocks.
fn ranges(blocks: impl Iterator<Item = LogBlock>) -> Vec<Range<LogBlock>> {
    let mut ranges: Vec<Range<LogBlock>> = Vec::new();
    for block in blocks {
        match ranges.last_mut() {
            Some(last) if last.end == block => last.end += 1,
            _ => ranges.push(block..block + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests;

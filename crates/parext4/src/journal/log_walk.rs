//! Reads the log for recovery: walks its transactions and checks their sequence numbers and checksums.
//!
//! Not responsible for what becomes of the blocks (`replay`). Invariants: no walk is longer than the log, so the walk of
//! a corrupt log ends; and no block with a wrong checksum is returned, if the journal has checksums.
//!
//! Source: kernel documentation, "Journal (jbd2)", and the behaviour of `fs/jbd2/recovery.c`.

use std::collections::HashMap;
use std::io::IoSliceMut;

use parext4_device::AlignedBuf;
use parext4_format::LogBlock;
use parext4_format::jbd2::{self, BlockType, JournalCompat, JournalSuperblock, Tag, TagFormat};

use super::log::LogMap;
use crate::convert::saturating_u32;
use crate::error::{Error, Result};

/// A block in a transaction of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedBlock<'a> {
    /// The sequence number of the transaction.
    pub sequence: u32,
    pub tag: &'a Tag,
    /// The log block with the contents.
    pub at: LogBlock,
    /// The contents, unescaped.
    pub bytes: &'a [u8],
}

/// Receives a logged block.
type BlockVisitor<'a> = dyn FnMut(LoggedBlock<'_>) -> Result<()> + 'a;

/// Log blocks that are read at once, at most, and their bytes.
const READ_AHEAD: u32 = 256;
const READ_AHEAD_BYTES: u32 = 1 << 20;

/// Walks the log from its start.
pub(super) struct LogWalk<'a> {
    reader: BlockReader<'a>,
    superblock: &'a JournalSuperblock,
    format: TagFormat,
    seed: u32,
}

impl<'a> LogWalk<'a> {
    pub(super) fn new(map: &'a LogMap, superblock: &'a JournalSuperblock) -> Self {
        Self {
            reader: BlockReader::new(map),
            superblock,
            format: TagFormat::from(superblock),
            seed: superblock.checksum_seed(),
        }
    }

    fn checksums(&self) -> bool {
        self.format.csum_v2 || self.format.csum_v3
    }

    /// Returns true if commit blocks may have a checksum of their transaction (version 1). Versions 2 and 3 exclude it.
    fn commit_checksums(&self) -> bool {
        !self.checksums() && self.superblock.compat().contains(JournalCompat::CHECKSUM)
    }

    /// Returns the number of log blocks, which limits every walk.
    fn ring(&self) -> u32 {
        self.superblock.log_end() - self.superblock.first()
    }

    /// Returns the log block that is `by` blocks after `log` in the ring.
    fn next(&self, log: LogBlock, by: u32) -> LogBlock {
        let (first, ring) = (LogBlock(self.superblock.first()), self.ring());
        let (at, by) = (log - first, by % ring);
        first + if at < ring - by { at + by } else { at - (ring - by) }
    }

    /// Returns the number of complete transactions in the log.
    ///
    /// # Errors
    /// If the log cannot be read, or a complete transaction contains a block with a bad checksum.
    pub(super) fn scan(&mut self) -> Result<u32> {
        let mut log = LogBlock(self.superblock.start());
        let mut sequence = self.superblock.sequence();
        let (mut transactions, mut walked, mut last_commit) = (0_u32, 0_u32, 0_u64);
        let (mut doubtful, mut crc32) = (false, !0);
        while walked < self.ring() {
            let block = self.reader.block(log)?;
            let kind = match jbd2::header(block) {
                Some((kind, found)) if found == sequence => kind,
                _ => break,
            };
            let mut blocks = 1_u32;
            match kind {
                BlockType::Descriptor => {
                    // A bad checksum may mean that this is an old block whose sequence number matches by chance.
                    // The commit block decides between the two.
                    doubtful |= self.fails_checksum(|p, b| jbd2::verify_descriptor(p.seed, b), log)?;
                    blocks = blocks.saturating_add(self.tag_count(log)?);
                    if self.commit_checksums() {
                        crc32 = self.crc32(crc32, log, blocks)?;
                    }
                }
                BlockType::Revoke => {
                    doubtful |= self.fails_checksum(|p, b| jbd2::verify_revoke(p.seed, b), log)?;
                }
                BlockType::Commit => {
                    let bad = !self.commit_is_valid(log, crc32)?;
                    let block = self.reader.block(log)?;
                    let seconds = jbd2::commit_time(block).map_or(0, |(seconds, _)| seconds);
                    if doubtful && !bad && seconds >= last_commit {
                        let text = format!("journal: transaction {sequence} has a block with a bad checksum");
                        return Err(Error::corrupt(text));
                    }
                    if doubtful || bad {
                        break;
                    }
                    (last_commit, crc32) = (seconds, !0);
                    transactions += 1;
                    sequence = sequence.wrapping_add(1);
                }
                BlockType::SuperblockV1 | BlockType::SuperblockV2 => break,
            }
            walked = walked.saturating_add(blocks);
            log = self.next(log, blocks);
        }
        Ok(transactions)
    }

    /// Returns true if the commit block at `log` has the right checksum. `crc32` is the checksum of its transaction's
    /// blocks (version 1), which a commit block may lack, as in jbd2.
    fn commit_is_valid(&mut self, log: LogBlock, crc32: u32) -> Result<bool> {
        let (checksums, commit_checksums, seed) = (self.checksums(), self.commit_checksums(), self.seed);
        let block = self.reader.block(log)?;
        Ok(if checksums {
            jbd2::verify_commit(seed, block).is_ok()
        } else {
            !commit_checksums || jbd2::commit_crc32(block).is_none_or(|stored| stored == crc32)
        })
    }

    /// Continues `crc32` over `blocks` log blocks from `log` on, in their escaped form.
    fn crc32(&mut self, mut crc32: u32, log: LogBlock, blocks: u32) -> Result<u32> {
        for nth in 0..blocks {
            let at = self.next(log, nth);
            crc32 = jbd2::crc32_be(crc32, self.reader.block(at)?);
        }
        Ok(crc32)
    }

    /// Returns true if a descriptor or revoke block fails its checksum; false if the journal has no checksums.
    fn fails_checksum(
        &mut self,
        check: impl Fn(&Self, &[u8]) -> parext4_format::Result<()>,
        log: LogBlock,
    ) -> Result<bool> {
        if !self.checksums() {
            return Ok(false);
        }
        let block = self.reader.block(log)?.to_vec();
        Ok(check(self, &block).is_err())
    }

    fn tags(&mut self, log: LogBlock) -> Result<Vec<Tag>> {
        let format = self.format;
        Ok(jbd2::parse_descriptor(self.reader.block(log)?, format)?)
    }

    fn tag_count(&mut self, log: LogBlock) -> Result<u32> {
        Ok(saturating_u32(self.tags(log)?.len()))
    }

    /// Sets, for each of the blocks `logged` that is revoked, the newest of the first `transactions` transactions that revokes it.
    /// Ignores other blocks: a log can revoke many more blocks than it has.
    pub(super) fn revokes(
        &mut self,
        transactions: u32,
        logged: &mut HashMap<u64, Option<u32>>,
    ) -> Result<()> {
        self.walk(transactions, &mut |walk, sequence, kind, log| {
            if kind == BlockType::Revoke {
                let format = walk.format;
                for block in jbd2::parse_revoke(walk.reader.block(log)?, format)? {
                    // The walk visits the transactions from the oldest to the newest.
                    logged.entry(block.get()).and_modify(|newest| *newest = Some(sequence));
                }
            }
            Ok(())
        })
    }

    /// Calls `each` with every logged block of the first `transactions` transactions, unescaped and with its checksum
    /// checked.
    ///
    /// # Errors
    /// If the log cannot be read, a checksum is bad, or `each` fails.
    pub(super) fn data(&mut self, transactions: u32, each: &mut BlockVisitor<'_>) -> Result<()> {
        self.walk(transactions, &mut |walk, sequence, kind, log| {
            if kind != BlockType::Descriptor {
                return Ok(());
            }
            let tags = walk.tags(log)?;
            for (nth, tag) in (1_u32..).zip(&tags) {
                let at = walk.next(log, nth);
                let mut bytes = walk.reader.block(at)?.to_vec();
                if walk.checksums()
                    && !jbd2::tag_checksum_matches(tag, walk.format, walk.seed, sequence, &bytes)
                {
                    let text =
                        format!("journal: transaction {sequence}: block {} has a bad checksum", tag.block);
                    return Err(Error::corrupt(text));
                }
                restore_escaped(tag, &mut bytes);
                each(LoggedBlock { sequence, tag, at, bytes: &bytes })?;
            }
            Ok(())
        })
    }

    /// Calls `visit` with the descriptor, revoke and commit blocks of the first `transactions` transactions.
    fn walk(
        &mut self,
        transactions: u32,
        visit: &mut dyn FnMut(&mut Self, u32, BlockType, LogBlock) -> Result<()>,
    ) -> Result<()> {
        let mut log = LogBlock(self.superblock.start());
        let start = self.superblock.sequence();
        let (mut done, mut walked) = (0, 0_u32);
        while done < transactions {
            let sequence = start.wrapping_add(done);
            let header = jbd2::header(self.reader.block(log)?);
            let expected = header.filter(|&(_, found)| found == sequence && walked < self.ring());
            let Some((kind, _)) = expected else {
                return Err(Error::corrupt(format_args!("journal: log block {log} changed during replay")));
            };
            visit(self, sequence, kind, log)?;
            let blocks = match kind {
                BlockType::Descriptor => self.tag_count(log)?.saturating_add(1),
                _ => 1,
            };
            walked = walked.saturating_add(blocks);
            if kind == BlockType::Commit {
                done += 1;
            }
            log = self.next(log, blocks);
        }
        Ok(())
    }
}

/// Restores the first four bytes of a block that was logged without them.
pub(super) fn restore_escaped(tag: &Tag, bytes: &mut [u8]) {
    if tag.escaped {
        bytes[..4].copy_from_slice(&jbd2::MAGIC.to_be_bytes());
    }
}

/// Reads log blocks, up to 256 contiguous ones with one request.
pub(super) struct BlockReader<'a> {
    map: &'a LogMap,
    first: LogBlock,
    run: Vec<AlignedBuf>,
}

impl<'a> BlockReader<'a> {
    pub(super) fn new(map: &'a LogMap) -> Self {
        Self { map, first: LogBlock::default(), run: Vec::new() }
    }

    /// Returns the contents of a log block.
    pub(super) fn block(&mut self, log: LogBlock) -> Result<&[u8]> {
        let cached = log.checked_distance(self.first).map(|at| at as usize).filter(|&at| at < self.run.len());
        let at = match cached {
            Some(at) => at,
            None => {
                self.fill(log)?;
                0
            }
        };
        Ok(&self.run[at])
    }

    /// Reads `log` and the contiguous log blocks after it.
    fn fill(&mut self, log: LogBlock) -> Result<()> {
        let (offset, together) = self.map.place(log)?;
        let count = together.min(READ_AHEAD).min(READ_AHEAD_BYTES / self.map.block_size) as usize;
        let mut run = vec![AlignedBuf::zeroed(self.map.block_size as usize); count];
        let mut slices: Vec<IoSliceMut<'_>> = run.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let device = &self.map.device;
        device.read_at(offset, &mut slices).map_err(|e| Error::device("reading the journal", e))?;
        self.first = log;
        self.run = run;
        Ok(())
    }
}

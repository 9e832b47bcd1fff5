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
use parext4_format::jbd2::{
    self, BlockType, JournalCompat, JournalIncompat, JournalSuperblock, Tag, TagFormat,
};

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

/// Each logged block, with the newest transaction that revokes it.
pub(super) type Revokes = HashMap<u64, Option<u32>>;

/// Receives a logged block.
type BlockVisitor<'a> = dyn FnMut(LoggedBlock<'_>) -> Result<()> + 'a;

/// Log blocks that are read at once, at most, and their bytes.
const READ_AHEAD: u32 = 256;
const READ_AHEAD_BYTES: u32 = 1 << 20;

/// What a scan of the log has found so far.
#[derive(Debug)]
pub(super) struct Scan {
    /// Number of complete transactions.
    pub transactions: u32,
    /// True if the log ends before a transaction with a bad checksum, which other old transactions may follow.
    pub ends_at_bad: bool,
    /// True if a descriptor or revoke block since the last commit block has a bad checksum. It may be an old block whose sequence
    /// number matches by chance.
    is_doubtful: bool,
    /// The checksum (version 1) of the transaction so far.
    crc32: u32,
    /// Time of the last commit block, in seconds.
    last_commit: Option<u64>,
}

impl Scan {
    fn new() -> Self {
        Self { transactions: 0, ends_at_bad: false, is_doubtful: false, crc32: !0, last_commit: None }
    }

    /// Decides what becomes of the transaction that a commit block of the time `seconds` ends. Returns false if the log ends before it.
    ///
    /// A transaction with a bad checksum ends the log if its commit block is older than the last one, and so was written before it.
    /// Else it is corruption, because a commit block is written after all other blocks are durable. With `ASYNC_COMMIT` it may be
    /// the last transaction, which a crash has interrupted. All this is as in jbd2, except that jbd2 refuses a first transaction
    /// without any valid checksum, which a volume made over an old journal may have.
    ///
    /// # Errors
    /// Corruption.
    fn commit(&mut self, sequence: u32, seconds: u64, is_valid: bool, is_async: bool) -> Result<bool> {
        let is_old = self.last_commit.map_or(self.is_doubtful && !is_valid, |last| seconds < last);
        if is_old && (self.is_doubtful || !is_valid) {
            self.ends_at_bad = true;
            return Ok(false);
        }
        if self.is_doubtful || self.ends_at_bad || !(is_valid || is_async) {
            let bad = sequence.wrapping_sub(self.ends_at_bad.into());
            return Err(Error::corrupt(format_args!("journal: transaction {bad} has a bad checksum")));
        }
        self.ends_at_bad = !is_valid;
        self.transactions += u32::from(is_valid);
        (self.last_commit, self.crc32) = (Some(seconds), !0);
        Ok(true)
    }
}

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

    /// Finds the complete transactions of the log.
    ///
    /// # Errors
    /// If the log cannot be read, or a transaction before its end has a bad checksum.
    pub(super) fn scan(&mut self) -> Result<Scan> {
        let mut log = LogBlock(self.superblock.start());
        let mut sequence = self.superblock.sequence();
        let (mut scan, mut walked) = (Scan::new(), 0_u32);
        while walked < self.ring() {
            let kind = match jbd2::header(self.reader.block(log)?) {
                Some((kind, found)) if found == sequence => kind,
                _ => break,
            };
            let mut blocks = 1_u32;
            match kind {
                BlockType::Descriptor => {
                    scan.is_doubtful |=
                        self.fails_checksum(|p, b| jbd2::verify_descriptor(p.seed, b), log)?;
                    blocks = blocks.saturating_add(self.tag_count(log)?);
                    if self.commit_checksums() {
                        scan.crc32 = self.crc32(scan.crc32, log, blocks)?;
                    }
                }
                BlockType::Revoke => {
                    scan.is_doubtful |= self.fails_checksum(|p, b| jbd2::verify_revoke(p.seed, b), log)?;
                }
                BlockType::Commit => {
                    let is_valid = self.commit_is_valid(log, scan.crc32)?;
                    let time = jbd2::commit_time(self.reader.block(log)?).map_or(0, |(seconds, _)| seconds);
                    let is_async = self.superblock.incompat().contains(JournalIncompat::ASYNC_COMMIT);
                    if !scan.commit(sequence, time, is_valid, is_async)? {
                        break;
                    }
                    sequence = sequence.wrapping_add(1);
                }
                BlockType::SuperblockV1 | BlockType::SuperblockV2 => break,
            }
            walked = walked.saturating_add(blocks);
            log = self.next(log, blocks);
        }
        Ok(scan)
    }

    /// Returns true if the commit block at `log` has the right checksum. `crc32` is the checksum of its transaction's
    /// blocks (version 1).
    fn commit_is_valid(&mut self, log: LogBlock, crc32: u32) -> Result<bool> {
        let (checksums, commit_checksums, seed) = (self.checksums(), self.commit_checksums(), self.seed);
        let block = self.reader.block(log)?;
        Ok(if checksums {
            jbd2::verify_commit(seed, block).is_ok()
        } else {
            !commit_checksums || jbd2::commit_crc32_matches(block, crc32)
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

    /// Returns the numbers of the blocks that the first `transactions` transactions log.
    pub(super) fn logged(&mut self, transactions: u32) -> Result<Revokes> {
        let mut logged = Revokes::new();
        self.walk(transactions, &mut |walk, _, kind, log| {
            if kind == BlockType::Descriptor {
                logged.extend(walk.tags(log)?.iter().map(|tag| (tag.block.get(), None)));
            }
            Ok(())
        })?;
        Ok(logged)
    }

    /// Sets, for each of the blocks `logged` that is revoked, the newest of the first `transactions` transactions that revokes it.
    /// Ignores other blocks: a log can revoke many more blocks than it has.
    pub(super) fn revokes(&mut self, transactions: u32, logged: &mut Revokes) -> Result<()> {
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

    /// Calls `each` with every logged block of the first `transactions` transactions that is not revoked, unescaped and with its checksum
    /// checked.
    ///
    /// # Errors
    /// If the log cannot be read, a checksum is bad, or `each` fails.
    pub(super) fn data(
        &mut self,
        transactions: u32,
        revokes: &Revokes,
        each: &mut BlockVisitor<'_>,
    ) -> Result<()> {
        self.walk(transactions, &mut |walk, sequence, kind, log| {
            if kind != BlockType::Descriptor {
                return Ok(());
            }
            let tags = walk.tags(log)?;
            for (nth, tag) in (1_u32..).zip(&tags) {
                let revoke = revokes.get(&tag.block.get()).copied().flatten();
                if revoke.is_some_and(|revoke| !before(revoke, sequence)) {
                    continue;
                }
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

/// Returns true if sequence number `a` is older than `b`. Sequence numbers wrap around.
pub(super) fn before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

//! Reads the log for recovery: finds its complete transactions, and checks their sequence numbers
//! and checksums.
//!
//! The module `replay` writes the blocks. Invariants: each block of the log is read once at most,
//! so the walk of a corrupt log ends; and only blocks of complete transactions are returned.
//!
//! Source: kernel documentation, "Journal (jbd2)", and the behaviour of `fs/jbd2/recovery.c`.

use std::collections::VecDeque;

use parext4_format::LogBlock;
use parext4_format::jbd2::{
    self, BlockType, JournalCompat, JournalIncompat, JournalSuperblock, Tag, TagFormat,
};

use super::log::LogMap;
use super::log_stream::LogStream;
use crate::error::{Error, Result};

/// A block that a transaction logs. Transactions are numbered from 1, the oldest.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedBlock {
    pub tag: Tag,
    /// The log block with the contents.
    pub at: LogBlock,
    pub transaction: u32,
    /// The newest transaction whose copy of the block has a bad checksum; 0 if none.
    pub bad: u32,
    /// The newest transaction that revokes the block; 0 if none.
    pub revoked: u32,
}

/// A block of the log with revoke records.
#[derive(Clone, Copy, Debug)]
pub(super) struct RevokeBlock {
    pub at: LogBlock,
    pub transaction: u32,
}

/// The complete transactions of a log.
#[derive(Debug)]
pub(super) struct Transactions {
    pub count: u32,
    /// True if the log ends before a transaction with a bad checksum, which other old transactions
    /// may follow.
    pub ends_at_bad: bool,
    /// The logged blocks, in the order of the log.
    pub blocks: Vec<LoggedBlock>,
    /// The blocks with revoke records, in the order of the log.
    pub revokes: Vec<RevokeBlock>,
}

impl Transactions {
    /// Reads the log.
    ///
    /// # Errors
    /// If the log cannot be read, or a transaction before its end has a bad checksum.
    pub(super) fn read(map: &LogMap, superblock: &JournalSuperblock) -> Result<Self> {
        let [first, start, end] =
            [superblock.first(), superblock.start(), superblock.log_end()].map(LogBlock);
        let mut stream = LogStream::new(map, [start..end, first..start]);
        let mut walk = Walk::new(superblock);
        while let Some((log, bytes)) = stream.read_next()?
            && walk.visit(log, bytes)?
        {}
        Ok(walk.finish())
    }
}

/// The state of a scan of the log.
#[derive(Debug)]
struct Scan {
    /// Number of complete transactions.
    transactions: u32,
    /// True if the log ends before a transaction with a bad checksum.
    ends_at_bad: bool,
    /// True if a descriptor or revoke block since the last commit block has a bad checksum. It may
    /// be an old block whose sequence number matches by chance.
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

    /// Decides whether the transaction counts that ends with a commit block of the time `seconds`.
    /// Returns false if the log ends before this transaction.
    ///
    /// A transaction with a bad checksum ends the log if its commit block is older than the
    /// previous one, because it then remains from an earlier use of the log. Otherwise a bad
    /// checksum is corruption, because a commit block is written after all other blocks are
    /// durable. With `ASYNC_COMMIT` the transaction may be the last one, which a crash has
    /// interrupted. jbd2 has the same rules, except that jbd2 refuses a log whose first transaction
    /// has no valid checksum. A volume made over an old journal may have such a log.
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

/// A walk through the log, from its start.
struct Walk<'a> {
    superblock: &'a JournalSuperblock,
    format: TagFormat,
    seed: u32,
    /// The sequence number of the transaction.
    sequence: u32,
    scan: Scan,
    /// The tags of the blocks that follow.
    tags: VecDeque<Tag>,
    blocks: Vec<LoggedBlock>,
    revokes: Vec<RevokeBlock>,
    /// Number of blocks in `blocks` and in `revokes` that belong to complete transactions.
    complete: (usize, usize),
}

impl<'a> Walk<'a> {
    fn new(superblock: &'a JournalSuperblock) -> Self {
        Self {
            superblock,
            format: TagFormat::from(superblock),
            seed: superblock.checksum_seed(),
            sequence: superblock.sequence(),
            scan: Scan::new(),
            tags: VecDeque::new(),
            blocks: Vec::new(),
            revokes: Vec::new(),
            complete: (0, 0),
        }
    }

    /// Returns true if commit blocks may have a checksum of their transaction (version 1). Versions
    /// 2 and 3 exclude it.
    fn commit_checksums(&self) -> bool {
        !self.format.has_checksums() && self.superblock.compat().contains(JournalCompat::CHECKSUM)
    }

    /// Visits the next block of the log. Returns false if the log ends before this block.
    ///
    /// # Errors
    /// Corruption.
    fn visit(&mut self, log: LogBlock, bytes: &[u8]) -> Result<bool> {
        if let Some(tag) = self.tags.pop_front() {
            self.visit_data(tag, log, bytes);
            return Ok(true);
        }
        let kind = match jbd2::header(bytes) {
            Some((kind, sequence)) if sequence == self.sequence => kind,
            _ => return Ok(false),
        };
        match kind {
            BlockType::Descriptor => self.visit_descriptor(bytes)?,
            BlockType::Revoke => {
                self.scan.is_doubtful |=
                    self.format.has_checksums() && jbd2::verify_revoke(self.seed, bytes).is_err();
                self.revokes.push(RevokeBlock { at: log, transaction: self.scan.transactions + 1 });
            }
            BlockType::Commit => return self.visit_commit(bytes),
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => return Ok(false),
        }
        Ok(true)
    }

    fn visit_descriptor(&mut self, bytes: &[u8]) -> Result<()> {
        self.scan.is_doubtful |=
            self.format.has_checksums() && jbd2::verify_descriptor(self.seed, bytes).is_err();
        self.tags = jbd2::parse_descriptor(bytes, self.format)?.into();
        if self.commit_checksums() {
            self.scan.crc32 = jbd2::crc32_be(self.scan.crc32, bytes);
        }
        Ok(())
    }

    fn visit_data(&mut self, tag: Tag, at: LogBlock, bytes: &[u8]) {
        if self.commit_checksums() {
            self.scan.crc32 = jbd2::crc32_be(self.scan.crc32, bytes);
        }
        let transaction = self.scan.transactions + 1;
        let matches = jbd2::tag_checksum_matches(&tag, self.format, self.seed, self.sequence, bytes);
        let bad = if matches { 0 } else { transaction };
        self.blocks.push(LoggedBlock { tag, at, transaction, bad, revoked: 0 });
    }

    fn visit_commit(&mut self, bytes: &[u8]) -> Result<bool> {
        let is_valid = if self.format.has_checksums() {
            jbd2::verify_commit(self.seed, bytes).is_ok()
        } else {
            !self.commit_checksums() || jbd2::commit_crc32_matches(bytes, self.scan.crc32)
        };
        let time = jbd2::commit_time(bytes).map_or(0, |(seconds, _)| seconds);
        let is_async = self.superblock.incompat().contains(JournalIncompat::ASYNC_COMMIT);
        if !self.scan.commit(self.sequence, time, is_valid, is_async)? {
            return Ok(false);
        }
        if is_valid {
            self.complete = (self.blocks.len(), self.revokes.len());
        }
        self.sequence = self.sequence.wrapping_add(1);
        Ok(true)
    }

    /// Returns the complete transactions.
    fn finish(mut self) -> Transactions {
        self.blocks.truncate(self.complete.0);
        self.revokes.truncate(self.complete.1);
        Transactions {
            count: self.scan.transactions,
            ends_at_bad: self.scan.ends_at_bad,
            blocks: self.blocks,
            revokes: self.revokes,
        }
    }
}

/// Restores the first four bytes of an escaped block.
pub(super) fn restore_escaped(tag: &Tag, bytes: &mut [u8]) {
    if tag.escaped {
        bytes[..4].copy_from_slice(&jbd2::MAGIC.to_be_bytes());
    }
}

/// Returns true if sequence number `a` is older than `b`. Sequence numbers wrap around.
pub(super) fn before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

//! Replay: what an interrupted writer, parext4 or the kernel, left in the log goes home.
//!
//! Four passes over the log: find the last whole transaction, collect revokes, check the data blocks, write.
//! Nothing is written unless all of it checks out. Source: kernel documentation, "Journal (jbd2)", and the
//! behaviour of `fs/jbd2/recovery.c`.

use std::collections::HashMap;
use std::io::IoSliceMut;

use parext4_device::{AlignedBuf, Device};
use parext4_format::FsBlock;
use parext4_format::jbd2::{self, BlockType, JournalCompat, JournalSuperblock, Tag, TagFormat};

use super::log::{LogExtent, LogMap};
use crate::error::{Error, Result};

/// Called with a transaction's sequence number, a tag, and the block that it describes.
type BlockVisitor<'a> = dyn FnMut(u32, &Tag, &[u8]) -> Result<()> + 'a;

/// Log blocks read at once.
const READ_AHEAD: u32 = 256;

/// What a replay found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// The sequence number for the next transaction.
    pub next_sequence: u32,
    /// Whole transactions found.
    pub transactions: u32,
    /// Blocks handed to the sink.
    pub blocks: u64,
}

/// Reads and checks the journal's superblock.
pub(crate) fn read_superblock(device: &dyn Device, map: &LogMap) -> Result<JournalSuperblock> {
    let mut bytes = AlignedBuf::zeroed(map.block_size as usize);
    let (offset, _) = map.place(0)?;
    device
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

/// Hands every block that the log holds, in the order of the transactions, to `sink`.
///
/// # Errors
/// If the log is corrupt, names blocks outside the volume, or `sink` fails.
pub(crate) fn replay(
    device: &dyn Device,
    map: &LogMap,
    superblock: &JournalSuperblock,
    blocks_count: u64,
    sink: &mut dyn FnMut(FsBlock, &[u8]) -> Result<()>,
) -> Result<Recovered> {
    if superblock.start() == 0 {
        let next_sequence = superblock.sequence();
        return Ok(Recovered { next_sequence, transactions: 0, blocks: 0 });
    }
    let mut pass = Pass::new(device, map, superblock);
    let own = OwnBlocks::new(map);
    let transactions = pass.scan()?;
    let revoked = pass.revokes(transactions)?;
    let mut blocks = 0;
    for check_only in [true, false] {
        pass.data(transactions, &mut |sequence, tag, bytes| {
            if tag.block.get() >= blocks_count {
                let text = format!("journal: transaction {sequence} writes block {} out of range", tag.block);
                return Err(Error::Corrupt(text));
            }
            // Else the last pass would change the log under its own feet.
            if own.contains(tag.block) {
                let text =
                    format!("journal: transaction {sequence} writes block {}, the journal's own", tag.block);
                return Err(Error::Corrupt(text));
            }
            let is_revoked = revoked.get(&tag.block.get()).is_some_and(|&by| !before(by, sequence));
            if check_only || is_revoked {
                return Ok(());
            }
            blocks += 1;
            sink(tag.block, bytes)
        })?;
    }
    Ok(Recovered { next_sequence: superblock.sequence().wrapping_add(transactions), transactions, blocks })
}

/// Returns the newest sequence number in a log that is not replayed, or that of an empty one. A later transaction with a
/// greater number is not taken for part of that log, nor is any of it replayed after that transaction.
///
/// # Errors
/// If the log cannot be read.
pub(crate) fn newest_sequence(
    device: &dyn Device,
    map: &LogMap,
    superblock: &JournalSuperblock,
) -> Result<u32> {
    let oldest = superblock.sequence();
    if superblock.start() == 0 {
        return Ok(oldest);
    }
    let mut reader = Reader { device, map, first: 0, run: Vec::new() };
    let mut newest = oldest;
    for log in superblock.first()..superblock.maxlen() {
        if let Some((_, sequence)) = jbd2::header(reader.block(log)?)
            && before(newest, sequence)
            && before(oldest, sequence)
        {
            newest = sequence;
        }
    }
    Ok(newest)
}

/// The blocks of the volume that the journal takes up: sorted, disjoint `(start, end)`.
struct OwnBlocks(Vec<(u64, u64)>);

impl OwnBlocks {
    fn new(map: &LogMap) -> Self {
        let range = |extent: &LogExtent| {
            let start = extent.physical.get();
            (start, start.saturating_add(extent.len.into()))
        };
        let mut ranges: Vec<_> = map.extents.iter().map(range).collect();
        ranges.sort_unstable();
        Self(ranges)
    }

    fn contains(&self, block: FsBlock) -> bool {
        let at = self.0.partition_point(|&(_, end)| end <= block.get());
        self.0.get(at).is_some_and(|&(start, _)| start <= block.get())
    }
}

/// Whether sequence number `a` is older than `b`; they wrap around.
fn before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

/// A walk through the log from its start.
struct Pass<'a> {
    reader: Reader<'a>,
    superblock: &'a JournalSuperblock,
    format: TagFormat,
    seed: u32,
}

impl<'a> Pass<'a> {
    fn new(device: &'a dyn Device, map: &'a LogMap, superblock: &'a JournalSuperblock) -> Self {
        Self {
            reader: Reader { device, map, first: 0, run: Vec::new() },
            superblock,
            format: TagFormat::from(superblock),
            seed: superblock.checksum_seed(),
        }
    }

    fn checksums(&self) -> bool {
        self.format.csum_v2 || self.format.csum_v3
    }

    /// Whether commit blocks may have the first kind of checksum. The later kinds exclude it.
    fn commit_checksums(&self) -> bool {
        !self.checksums() && self.superblock.compat().contains(JournalCompat::CHECKSUM)
    }

    /// The blocks that the log has; no walk through it is longer.
    fn ring(&self) -> u32 {
        self.superblock.maxlen() - self.superblock.first()
    }

    /// The log block `by` blocks behind `log`.
    fn next(&self, log: u32, by: u32) -> u32 {
        let (first, ring) = (self.superblock.first(), self.ring());
        let (at, by) = (log - first, by % ring);
        first + if at < ring - by { at + by } else { at - (ring - by) }
    }

    /// How many whole transactions the log holds.
    fn scan(&mut self) -> Result<u32> {
        let mut log = self.superblock.start();
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
                    // A bad checksum may be an old block whose sequence number matches by chance; the
                    // commit block tells.
                    doubtful |= self.format_checked(|p, b| jbd2::verify_descriptor(p.seed, b), log)?;
                    blocks = blocks.saturating_add(self.tag_count(log)?);
                    if self.commit_checksums() {
                        crc32 = self.crc32(crc32, log, blocks)?;
                    }
                }
                BlockType::Revoke => {
                    doubtful |= self.format_checked(|p, b| jbd2::verify_revoke(p.seed, b), log)?;
                }
                BlockType::Commit => {
                    let bad = !self.commit_holds(log, crc32)?;
                    let block = self.reader.block(log)?;
                    let seconds = jbd2::commit_time(block).map_or(0, |(seconds, _)| seconds);
                    if doubtful && !bad && seconds >= last_commit {
                        let text = format!("journal: transaction {sequence} has a block with a bad checksum");
                        return Err(Error::Corrupt(text));
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

    /// Whether the commit block at `log` has the checksum that it should have; `crc32` is that of its
    /// transaction's blocks. As in jbd2, a commit block may lack the first kind.
    fn commit_holds(&mut self, log: u32, crc32: u32) -> Result<bool> {
        let (checksums, commit_checksums, seed) = (self.checksums(), self.commit_checksums(), self.seed);
        let block = self.reader.block(log)?;
        Ok(if checksums {
            jbd2::verify_commit(seed, block).is_ok()
        } else {
            !commit_checksums || jbd2::commit_crc32(block).is_none_or(|stored| stored == crc32)
        })
    }

    /// Continues `crc32` over so many log blocks from `log` on, as they stand in the log.
    fn crc32(&mut self, mut crc32: u32, log: u32, blocks: u32) -> Result<u32> {
        for nth in 0..blocks {
            let at = self.next(log, nth);
            crc32 = jbd2::crc32_be(crc32, self.reader.block(at)?);
        }
        Ok(crc32)
    }

    /// Whether a control block fails its checksum, where the journal has checksums.
    fn format_checked(
        &mut self,
        check: impl Fn(&Self, &[u8]) -> parext4_format::Result<()>,
        log: u32,
    ) -> Result<bool> {
        if !self.checksums() {
            return Ok(false);
        }
        let block = self.reader.block(log)?.to_vec();
        Ok(check(self, &block).is_err())
    }

    fn tags(&mut self, log: u32) -> Result<Vec<Tag>> {
        let format = self.format;
        Ok(jbd2::parse_descriptor(self.reader.block(log)?, format)?)
    }

    fn tag_count(&mut self, log: u32) -> Result<u32> {
        Ok(u32::try_from(self.tags(log)?.len()).unwrap_or(u32::MAX))
    }

    /// The newest transaction that revokes each block.
    fn revokes(&mut self, transactions: u32) -> Result<HashMap<u64, u32>> {
        let mut revoked: HashMap<u64, u32> = HashMap::new();
        self.walk(transactions, &mut |pass, sequence, kind, log| {
            if kind == BlockType::Revoke {
                let format = pass.format;
                for block in jbd2::parse_revoke(pass.reader.block(log)?, format)? {
                    // The walk goes forward in time, so the last one seen is the newest.
                    revoked.insert(block.get(), sequence);
                }
            }
            Ok(())
        })?;
        Ok(revoked)
    }

    /// Calls `each` with every logged block, unescaped and checked.
    fn data(&mut self, transactions: u32, each: &mut BlockVisitor<'_>) -> Result<()> {
        self.walk(transactions, &mut |pass, sequence, kind, log| {
            if kind != BlockType::Descriptor {
                return Ok(());
            }
            let tags = pass.tags(log)?;
            for (nth, tag) in (1_u32..).zip(&tags) {
                let at = pass.next(log, nth);
                let mut bytes = pass.reader.block(at)?.to_vec();
                if pass.checksums()
                    && !jbd2::tag_checksum_matches(tag, pass.format, pass.seed, sequence, &bytes)
                {
                    let text =
                        format!("journal: transaction {sequence}: block {} has a bad checksum", tag.block);
                    return Err(Error::Corrupt(text));
                }
                if tag.escaped {
                    bytes[..4].copy_from_slice(&jbd2::MAGIC.to_be_bytes());
                }
                each(sequence, tag, &bytes)?;
            }
            Ok(())
        })
    }

    /// Visits the control blocks of the whole transactions that `scan` counted.
    fn walk(
        &mut self,
        transactions: u32,
        visit: &mut dyn FnMut(&mut Self, u32, BlockType, u32) -> Result<()>,
    ) -> Result<()> {
        let mut log = self.superblock.start();
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

/// Reads log blocks, some ahead.
struct Reader<'a> {
    device: &'a dyn Device,
    map: &'a LogMap,
    first: u32,
    run: Vec<AlignedBuf>,
}

impl Reader<'_> {
    fn block(&mut self, log: u32) -> Result<&[u8]> {
        let cached = log.checked_sub(self.first).map(|at| at as usize).filter(|&at| at < self.run.len());
        let at = match cached {
            Some(at) => at,
            None => {
                self.fill(log)?;
                0
            }
        };
        Ok(&self.run[at])
    }

    fn fill(&mut self, log: u32) -> Result<()> {
        let (offset, together) = self.map.place(log)?;
        let count = together.min(READ_AHEAD) as usize;
        let mut run = vec![AlignedBuf::zeroed(self.map.block_size as usize); count];
        let mut slices: Vec<IoSliceMut<'_>> = run.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        self.device.read_at(offset, &mut slices).map_err(|e| Error::device("reading the journal", e))?;
        self.first = log;
        self.run = run;
        Ok(())
    }
}

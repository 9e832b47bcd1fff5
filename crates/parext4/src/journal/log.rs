//! The log: the blocks of the journal inode, or of a device of its own, used as a ring, and the
//! encoding of one transaction into them.
//!
//! Room in the log and its start are the subject of `checkpoint` and `tail`; `replay` reads the
//! log. Invariant: the commit block of a transaction is written only after a flush that covers its
//! log blocks and all file data that it reveals (I3, H8).
//!
//! Source of the format: kernel documentation, "Journal (jbd2)".

use std::io::IoSlice;

use parext4_device::{AlignedBuf, Device, zeros};
use parext4_format::jbd2::{self, JournalSuperblock, Tag, TagFormat};
use parext4_format::{FsBlock, LogBlock};

use super::pending::LogSpan;
use super::transaction::FrozenTransaction;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::sync::Arc;

/// Limit of one write to the log, in blocks.
const RUN: usize = 256;

/// Limit of the log in use, in bytes. The blocks in the log are in memory until they are at their
/// home locations.
const MAX_IN_USE: u32 = 256 << 20;

/// Returns the number of blocks that may be in use in a log of `blocks` blocks.
pub(crate) fn usable(blocks: u32, block_size: u32) -> u32 {
    blocks.min(MAX_IN_USE / block_size)
}

/// Log blocks that are contiguous on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogExtent {
    /// The first log block.
    pub log: LogBlock,
    pub physical: FsBlock,
    pub len: u32,
}

/// Maps log blocks to device offsets.
#[derive(Clone, Debug)]
pub(crate) struct LogMap {
    /// The device with the log: the volume's device, or one of its own.
    pub device: Arc<dyn Device>,
    /// True if the log is not on the volume's device.
    pub external: bool,
    pub block_size: u32,
    /// The log block with the journal's superblock.
    pub superblock: LogBlock,
    pub extents: Vec<LogExtent>,
}

impl LogMap {
    /// Returns the offset of a log block on the device, in bytes, and the number of log blocks that
    /// are contiguous there, including this one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the journal has no such block.
    pub(crate) fn place(&self, log: LogBlock) -> Result<(u64, u32)> {
        let at = self.extents.partition_point(|extent| extent.log <= log);
        let extent = at.checked_sub(1).and_then(|at| self.extents.get(at));
        match extent {
            Some(extent) if log - extent.log < extent.len => {
                let skip = log - extent.log;
                let block = extent.physical.get() + u64::from(skip);
                Ok((block * u64::from(self.block_size), extent.len - skip))
            }
            _ => Err(Error::corrupt(format_args!("journal: log block {log} is not mapped"))),
        }
    }
}

/// A block of the volume, and the contents that a transaction gives it.
pub(super) type Content<'a> = (FsBlock, &'a Arc<AlignedBuf>);

/// The log of an open volume, which the committer writes. No other thread uses it.
#[derive(Debug)]
pub(super) struct Log {
    /// The volume's device.
    device: Arc<dyn Device>,
    clock: Clock,
    map: Arc<LogMap>,
    format: TagFormat,
    uuid: [u8; 16],
    seed: u32,
    /// The first log block, and the block after the last one.
    first: LogBlock,
    end: LogBlock,
    /// The next log block to write.
    head: LogBlock,
    /// True if a transaction was written since the log was last empty.
    used: bool,
}

impl Log {
    /// Returns an empty log, to be written from the first log block on.
    pub(super) fn new(
        device: Arc<dyn Device>,
        map: Arc<LogMap>,
        superblock: &JournalSuperblock,
        clock: Clock,
    ) -> Self {
        Self {
            device,
            clock,
            map,
            format: TagFormat::from(superblock),
            uuid: superblock.uuid(),
            seed: superblock.checksum_seed(),
            first: LogBlock(superblock.first()),
            end: LogBlock(superblock.log_end()),
            head: LogBlock(superblock.first()),
            used: false,
        }
    }

    /// Returns the limit of blocks that one transaction may register: a quarter of the log that may
    /// be in use, as in jbd2.
    pub(super) fn max_transaction(&self) -> u32 {
        usable(self.end - self.first, self.map.block_size) / 4
    }

    /// Returns true if no transaction was written since the log was last empty.
    pub(super) fn is_unused(&self) -> bool {
        !self.used
    }

    /// Records that the log is empty on the device, so that the next transaction records where the
    /// log begins.
    pub(super) fn mark_unused(&mut self) {
        self.used = false;
    }

    /// Returns the next log block to write.
    pub(super) fn head(&self) -> LogBlock {
        self.head
    }

    /// Returns the number of log blocks that a transaction occupies.
    pub(super) fn blocks_needed(&self, frozen: &FrozenTransaction) -> u32 {
        let size = self.map.block_size as usize;
        let revokes = frozen.revoked.len().div_ceil(jbd2::revokes_per_block(size, self.format));
        self.len_of(frozen.blocks.len()).saturating_add(u32::try_from(revokes).unwrap_or(u32::MAX / 2))
    }

    /// Returns the number of log blocks that a transaction of `blocks` blocks without revoke
    /// records occupies.
    pub(super) fn len_of(&self, blocks: usize) -> u32 {
        let descriptors =
            blocks.div_ceil(jbd2::tags_per_descriptor(self.map.block_size as usize, self.format));
        u32::try_from(blocks + descriptors + 1).unwrap_or(u32::MAX / 2)
    }

    /// Writes a transaction and makes it durable:
    ///
    /// 1. writes the revoke, descriptor and data blocks;
    /// 2. flushes both devices, which also covers the file data that the transaction reveals (I3,
    ///    H8);
    /// 3. writes the commit block;
    /// 4. flushes the log.
    ///
    /// The caller has made room in the log.
    pub(super) fn write(&mut self, frozen: &FrozenTransaction) -> Result<LogSpan> {
        self.used = true;
        let contents: Vec<Content<'_>> =
            frozen.blocks.iter().map(|frozen| (frozen.block.number(), &frozen.bytes)).collect();
        self.write_blocks(frozen.tid, &frozen.revoked, &contents)
    }

    /// Writes transaction `tid`, as [`write`](Self::write) does.
    pub(super) fn write_blocks(
        &mut self,
        tid: u64,
        revoked: &[FsBlock],
        contents: &[Content<'_>],
    ) -> Result<LogSpan> {
        let blocks = self.encode(tid, revoked, contents);
        self.append(&blocks)?;
        guarded!(Fault::DataUnflushed, self.flush_all()?);
        let commit = self.commit_block(tid);
        self.append(&[commit])?;
        guarded!(Fault::CommitUnflushed, self.flush()?);
        let len = u32::try_from(blocks.len() + 1).unwrap_or(u32::MAX / 2);
        Ok(LogSpan { len, end: self.head })
    }

    fn encode(&self, tid: u64, revoked: &[FsBlock], contents: &[Content<'_>]) -> Vec<Arc<AlignedBuf>> {
        let size = self.map.block_size as usize;
        let mut out = Vec::with_capacity(contents.len() + 8);
        for chunk in revoked.chunks(jbd2::revokes_per_block(size, self.format)) {
            let mut block = AlignedBuf::zeroed(size);
            jbd2::encode_revoke(&mut block, self.format, sequence(tid), self.seed, chunk);
            out.push(Arc::new(block));
        }
        for chunk in contents.chunks(jbd2::tags_per_descriptor(size, self.format)) {
            self.encode_chunk(tid, chunk, &mut out);
        }
        out
    }

    /// Encodes one descriptor block, followed by the blocks that it describes.
    fn encode_chunk(&self, tid: u64, chunk: &[Content<'_>], out: &mut Vec<Arc<AlignedBuf>>) {
        let mut tags = Vec::with_capacity(chunk.len());
        let mut bodies = Vec::with_capacity(chunk.len());
        for &(number, bytes) in chunk {
            let escaped = jbd2::needs_escape(bytes);
            let body = if escaped { escape(bytes) } else { Arc::clone(bytes) };
            tags.push(Tag {
                block: number,
                escaped,
                deleted: false,
                // jbd2 computes the checksum of the block as it is in the log, after the escape.
                checksum: jbd2::data_checksum(self.seed, sequence(tid), &body),
            });
            bodies.push(body);
        }
        let mut descriptor = AlignedBuf::zeroed(self.map.block_size as usize);
        jbd2::encode_descriptor(&mut descriptor, self.format, sequence(tid), self.seed, &self.uuid, &tags);
        out.push(Arc::new(descriptor));
        out.append(&mut bodies);
    }

    fn commit_block(&self, tid: u64) -> Arc<AlignedBuf> {
        let now = self.clock.now();
        let mut block = AlignedBuf::zeroed(self.map.block_size as usize);
        let seconds = now.seconds.unsigned_abs();
        jbd2::encode_commit(&mut block, self.format, sequence(tid), self.seed, seconds, now.nanoseconds);
        Arc::new(block)
    }

    /// Writes blocks at the head and advances it. One request covers up to 256 blocks that are
    /// contiguous on the device.
    fn append(&mut self, mut blocks: &[Arc<AlignedBuf>]) -> Result<()> {
        while !blocks.is_empty() {
            let (offset, together) = self.map.place(self.head)?;
            let to_wrap = self.end - self.head;
            let run = blocks.len().min(together as usize).min(to_wrap as usize).min(RUN);
            let slices: Vec<IoSlice<'_>> = blocks[..run].iter().map(|b| IoSlice::new(b)).collect();
            let device = &self.map.device;
            device.write_at(offset, &slices).map_err(|e| Error::device("writing the journal", e))?;
            let run_blocks = u32::try_from(run).unwrap_or(0);
            self.head += run_blocks;
            if self.head >= self.end {
                self.head = self.first;
            }
            blocks = &blocks[run..];
        }
        Ok(())
    }

    /// Overwrites all blocks of an empty log with zeros, and flushes.
    pub(super) fn zero(&self) -> Result<()> {
        self.each_run(|mut offset, mut len| {
            while len > 0 {
                let zeros =
                    &zeros()[..usize::try_from(len).map_or(zeros().len(), |len| len.min(zeros().len()))];
                let device = &self.map.device;
                device
                    .write_at(offset, &[IoSlice::new(zeros)])
                    .map_err(|e| Error::device("zeroing the journal", e))?;
                (offset, len) = (offset + zeros.len() as u64, len - zeros.len() as u64);
            }
            Ok(())
        })?;
        self.flush()
    }

    /// Discards all blocks of an empty log on the device.
    pub(super) fn discard(&self) -> Result<()> {
        self.each_run(|offset, len| {
            self.map.device.discard(offset, len).map_err(|e| Error::device("discarding the journal", e))
        })
    }

    /// Calls `each` with the offset and the length, in bytes, of each run of log blocks that are
    /// contiguous on the device.
    fn each_run(&self, mut each: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let mut log = self.first;
        while log < self.end {
            let (offset, together) = self.map.place(log)?;
            let blocks = together.min(self.end - log);
            each(offset, u64::from(blocks) * u64::from(self.map.block_size))?;
            log += blocks;
        }
        Ok(())
    }

    /// Flushes the log's device, and the volume's device if that is another one.
    fn flush_all(&self) -> Result<()> {
        if self.map.external {
            self.device.flush().map_err(|e| Error::device("flushing the device", e))?;
        }
        self.flush()
    }

    /// Flushes the log's device.
    fn flush(&self) -> Result<()> {
        self.map.device.flush().map_err(|e| Error::device("flushing the journal", e))
    }
}

/// Returns the sequence number of a transaction on the device: the low 32 bits of its number.
#[expect(clippy::cast_possible_truncation, reason = "jbd2 sequence numbers wrap around")]
pub(super) fn sequence(tid: u64) -> u32 {
    tid as u32
}

/// Copies a block without its first four bytes, which would look like the magic number of a log
/// block.
fn escape(bytes: &AlignedBuf) -> Arc<AlignedBuf> {
    let mut copy = bytes.clone();
    copy[..4].fill(0);
    Arc::new(copy)
}

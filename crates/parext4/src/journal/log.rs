//! The log: the journal inode's blocks as a ring, and the encoding of one transaction into it (jbd2).
//!
//! Source: kernel documentation, "Journal (jbd2)".

use std::io::IoSlice;
use std::time::SystemTime;

use parext4_device::{AlignedBuf, Device, zeros};
use parext4_format::FsBlock;
use parext4_format::jbd2::{self, JournalSuperblock, Tag, TagFormat};

use super::pending::LogSpan;
use super::transaction::{Frozen, FrozenBlock};
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::sync::Arc;

/// At most this many blocks in one write to the log.
const RUN: usize = 256;

/// A run of log blocks that lie together on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogExtent {
    /// First log block, counted from the start of the journal.
    pub log: u32,
    pub physical: FsBlock,
    pub len: u32,
}

/// Where the journal's blocks are.
#[derive(Clone, Debug)]
pub(crate) struct LogMap {
    pub block_size: u32,
    pub extents: Vec<LogExtent>,
}

impl LogMap {
    /// The device offset of a log block and how many log blocks follow it there without a gap.
    pub(crate) fn place(&self, log: u32) -> Result<(u64, u32)> {
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

/// The log of an open volume, from its head on. Only the committer uses it.
#[derive(Debug)]
pub(super) struct Log {
    device: Arc<dyn Device>,
    map: Arc<LogMap>,
    format: TagFormat,
    uuid: [u8; 16],
    seed: u32,
    /// The first log block, and the one after the last.
    first: u32,
    end: u32,
    /// The next log block to write.
    head: u32,
    /// Whether a transaction was written since the log was last empty.
    used: bool,
}

impl Log {
    /// An empty log.
    pub(super) fn new(device: Arc<dyn Device>, map: Arc<LogMap>, superblock: &JournalSuperblock) -> Self {
        Self {
            device,
            map,
            format: TagFormat::from(superblock),
            uuid: superblock.uuid(),
            seed: superblock.checksum_seed(),
            first: superblock.first(),
            end: superblock.maxlen(),
            head: superblock.first(),
            used: false,
        }
    }

    /// The most blocks that one transaction may register: a quarter of the log, as jbd2 has it.
    pub(super) fn max_transaction(&self) -> u32 {
        (self.end - self.first) / 4
    }

    /// Whether no transaction was written since the log was last empty.
    pub(super) fn is_unused(&self) -> bool {
        !self.used
    }

    /// Notes that the log is empty on the device: recovery is to look at it again from the next transaction on.
    pub(super) fn begin_anew(&mut self) {
        self.used = false;
    }

    /// The next log block to write.
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// The log blocks that a transaction takes.
    pub(super) fn blocks_needed(&self, frozen: &Frozen) -> u32 {
        let size = self.map.block_size as usize;
        let descriptors = frozen.blocks.len().div_ceil(jbd2::tags_per_descriptor(size, self.format));
        let revokes = frozen.revoked.len().div_ceil(jbd2::revokes_per_block(size, self.format));
        u32::try_from(frozen.blocks.len() + descriptors + revokes + 1).unwrap_or(u32::MAX / 2)
    }

    /// Writes a transaction so that it is durable on return: its blocks, a flush that also covers the data
    /// it reveals (I3, H8), then the commit block and a flush. The caller has made sure that there is room.
    pub(super) fn write(&mut self, frozen: &Frozen) -> Result<LogSpan> {
        self.used = true;
        let blocks = self.encode(frozen);
        self.append(&blocks)?;
        if !planted(Fault::DataUnflushed) {
            self.flush()?;
        }
        let commit = self.commit_block(frozen.tid);
        self.append(&[commit])?;
        if !planted(Fault::CommitUnflushed) {
            self.flush()?;
        }
        let len = u32::try_from(blocks.len() + 1).unwrap_or(u32::MAX / 2);
        Ok(LogSpan { len, end: self.head })
    }

    fn encode(&self, frozen: &Frozen) -> Vec<Arc<AlignedBuf>> {
        let size = self.map.block_size as usize;
        let mut out = Vec::with_capacity(frozen.blocks.len() + 8);
        for chunk in frozen.revoked.chunks(jbd2::revokes_per_block(size, self.format)) {
            let mut block = AlignedBuf::zeroed(size);
            jbd2::encode_revoke(&mut block, self.format, sequence(frozen.tid), self.seed, chunk);
            out.push(Arc::new(block));
        }
        for chunk in frozen.blocks.chunks(jbd2::tags_per_descriptor(size, self.format)) {
            self.encode_chunk(frozen.tid, chunk, &mut out);
        }
        out
    }

    /// One descriptor block and the blocks it describes.
    fn encode_chunk(&self, tid: u64, chunk: &[FrozenBlock], out: &mut Vec<Arc<AlignedBuf>>) {
        let mut tags = Vec::with_capacity(chunk.len());
        let mut bodies = Vec::with_capacity(chunk.len());
        for frozen in chunk {
            let escaped = jbd2::needs_escape(&frozen.bytes);
            let body = if escaped { escape(&frozen.bytes) } else { Arc::clone(&frozen.bytes) };
            tags.push(Tag {
                block: frozen.block.number(),
                escaped,
                deleted: false,
                // The checksum is of the block as it stands in the log, after the escape.
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
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut block = AlignedBuf::zeroed(self.map.block_size as usize);
        let (seconds, nanos) = (now.as_secs(), now.subsec_nanos());
        jbd2::encode_commit(&mut block, self.format, sequence(tid), self.seed, seconds, nanos);
        Arc::new(block)
    }

    /// Writes blocks at the head, in as few requests as the ring and the journal's extents allow.
    fn append(&mut self, mut blocks: &[Arc<AlignedBuf>]) -> Result<()> {
        while !blocks.is_empty() {
            let (offset, together) = self.map.place(self.head)?;
            let to_wrap = self.end - self.head;
            let run = blocks.len().min(together as usize).min(to_wrap as usize).min(RUN);
            let slices: Vec<IoSlice<'_>> = blocks[..run].iter().map(|b| IoSlice::new(b)).collect();
            self.device.write_at(offset, &slices).map_err(|e| Error::device("writing the journal", e))?;
            let run_blocks = u32::try_from(run).unwrap_or(0);
            self.head += run_blocks;
            if self.head >= self.end {
                self.head = self.first;
            }
            blocks = &blocks[run..];
        }
        Ok(())
    }

    /// Overwrites all blocks of an empty log with zeros, durably.
    pub(super) fn zero(&self) -> Result<()> {
        self.each_run(|mut offset, mut len| {
            while len > 0 {
                let zeros =
                    &zeros()[..usize::try_from(len).map_or(zeros().len(), |len| len.min(zeros().len()))];
                self.device
                    .write_at(offset, &[IoSlice::new(zeros)])
                    .map_err(|e| Error::device("zeroing the journal", e))?;
                (offset, len) = (offset + zeros.len() as u64, len - zeros.len() as u64);
            }
            Ok(())
        })?;
        self.flush()
    }

    /// Discards all blocks of an empty log.
    pub(super) fn discard(&self) -> Result<()> {
        self.each_run(|offset, len| {
            self.device.discard(offset, len).map_err(|e| Error::device("discarding the journal", e))
        })
    }

    /// Calls `each` with the offset and the length, in bytes, of each run of log blocks that lie together on the device.
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

    fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|e| Error::device("flushing the device", e))
    }
}

/// The sequence number on the device: the low 32 bits, which wrap around as jbd2's do.
#[expect(clippy::cast_possible_truncation, reason = "wrapping is the format's rule")]
pub(super) fn sequence(tid: u64) -> u32 {
    tid as u32
}

fn escape(bytes: &AlignedBuf) -> Arc<AlignedBuf> {
    let mut copy = bytes.clone();
    copy[..4].fill(0);
    Arc::new(copy)
}

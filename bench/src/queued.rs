//! Submitters that use queues: of the library, and of a device or file.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parext4::device::{Done, Op, Queue, Request, Segment};
use parext4::{AlignedBuf, Completion, DirectFile, IoFlags, IoQueue, IoRequest};

use super::access_order::{Io, Kind};
use super::buffers::buffer;
use super::job::Job;
use super::submitter::Submitter;

/// Submits operations on a file to a queue of the library.
pub struct VolumeQueue {
    queue: IoQueue,
    file: DirectFile,
    bufs: Vec<Option<AlignedBuf>>,
    done: Vec<Completion>,
}

impl VolumeQueue {
    /// Returns a submitter with `depth` slots.
    pub fn new(queue: IoQueue, file: DirectFile, job: &Job, depth: u32) -> Result<Self> {
        let bufs = (0..depth).map(|_| buffer(job.block.max).map(Some)).collect::<Result<_>>()?;
        Ok(Self { queue, file, bufs, done: Vec::with_capacity(depth as usize) })
    }
}

impl Submitter for VolumeQueue {
    fn submit(&mut self, slot: usize, io: &Io) -> Result<()> {
        let buf = self.bufs[slot].take().context("a slot is used twice")?;
        let (offset, len) = (io.offset, usize::try_from(io.len)?);
        let request = match io.kind {
            Kind::Read => IoRequest::Read { buf, len, offset },
            Kind::Write => IoRequest::Write { buf, len, offset },
            Kind::Append => IoRequest::Append { buf, len },
            Kind::Sync => {
                self.bufs[slot] = Some(buf);
                IoRequest::SyncAll
            }
        };
        self.queue.submit(&self.file, request, slot as u64, IoFlags::new());
        Ok(())
    }

    fn harvest(&mut self, free: &mut Vec<usize>) -> Result<()> {
        self.queue.harvest(&mut self.done)?;
        for done in self.done.drain(..) {
            done.result?;
            // `submit` made the token from a slot.
            let slot = done.token as usize;
            self.bufs[slot] = done.buf.or(self.bufs[slot].take());
            free.push(slot);
        }
        Ok(())
    }
}

/// Submits operations to a queue of a device or file. All writes share one buffer. Each slot has
/// its own buffer for reads.
pub struct DeviceQueue {
    queue: Box<dyn Queue>,
    source: Arc<AlignedBuf>,
    reads: Vec<Option<AlignedBuf>>,
    done: Vec<Done>,
}

impl DeviceQueue {
    /// Returns a submitter with `depth` slots.
    pub fn new(queue: Box<dyn Queue>, job: &Job, depth: u32) -> Result<Self> {
        let reads = match job.rw.reads() {
            true => (0..depth).map(|_| buffer(job.block.max).map(Some)).collect::<Result<_>>()?,
            false => Vec::new(),
        };
        let source = Arc::new(buffer(job.block.max)?);
        Ok(Self { queue, source, reads, done: Vec::with_capacity(depth as usize) })
    }
}

impl Submitter for DeviceQueue {
    fn submit(&mut self, slot: usize, io: &Io) -> Result<()> {
        let (offset, len) = (io.offset, usize::try_from(io.len)?);
        let op = match io.kind {
            Kind::Read => {
                let buf = self.reads[slot].take().context("a slot is used twice")?;
                Op::Read { offset, buf, len }
            }
            Kind::Write => {
                let segment = Segment { buf: Arc::clone(&self.source), start: 0, len };
                Op::Write { offset, segments: std::iter::once(segment).collect() }
            }
            Kind::Append => bail!("a queue of a device or file has no appends; they go one at a time"),
            Kind::Sync => Op::Flush,
        };
        self.queue.submit(Request { token: slot as u64, op });
        Ok(())
    }

    fn harvest(&mut self, free: &mut Vec<usize>) -> Result<()> {
        while self.done.is_empty() {
            self.queue.harvest(true, &mut self.done)?;
        }
        for done in self.done.drain(..) {
            done.result?;
            // `submit` made the token from a slot.
            let slot = done.token as usize;
            if let Op::Read { buf, .. } = done.op {
                self.reads[slot] = Some(buf);
            }
            free.push(slot);
        }
        Ok(())
    }
}

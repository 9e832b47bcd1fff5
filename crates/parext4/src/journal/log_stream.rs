//! Reads blocks of the log in a given order, with requests in flight ahead of the reader.
//!
//! The stream reads ahead as many bytes as the reader has consumed, from 128 KiB up to 8 MiB. So a
//! short log costs few reads, and a long log waits for the device's latency only at its start. The
//! stream does not interpret the blocks.
//!
//! A failed request does not fail the blocks that it covers, because the reader may not need them:
//! each block is read again alone when the reader reaches it.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::ops::Range;

use parext4_device::{AlignedBuf, Done, Op, Queue, Request, open_queue};
use parext4_format::LogBlock;

use super::log::LogMap;
use crate::convert::{saturating_u32, to_usize};
use crate::error::{Error, Result};

/// Limit of requests in flight.
const DEPTH: u32 = 32;
/// Limit of one request, in bytes.
const RUN_BYTES: u64 = 1 << 20;
/// Limits of the bytes in flight.
const AHEAD: (u64, u64) = (128 << 10, 8 << 20);

/// A sequence of log blocks that is read ahead.
#[derive(Debug)]
pub(super) struct LogStream<'a> {
    map: &'a LogMap,
    queue: Box<dyn Queue>,
    /// Blocks that no request covers yet.
    rest: VecDeque<Range<LogBlock>>,
    /// The runs that the reader has not consumed, in order. The reader is in the first one.
    runs: VecDeque<Run>,
    /// Number of blocks of the first run that the reader has consumed.
    at: u32,
    /// Number of runs that the reader has consumed, and the number of their bytes.
    left: (u64, u64),
    /// Bytes in flight.
    in_flight: u64,
    done: Vec<Done>,
    /// Buffer for a block of a run that could not be read as a whole.
    single: AlignedBuf,
}

/// Contiguous log blocks that one request reads.
#[derive(Debug)]
struct Run {
    first: LogBlock,
    blocks: u32,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    InFlight,
    Read(AlignedBuf),
    Failed,
}

impl<'a> LogStream<'a> {
    /// Returns the blocks of `ranges`, in their order. Nothing is read yet.
    pub(super) fn new(map: &'a LogMap, ranges: impl IntoIterator<Item = Range<LogBlock>>) -> Self {
        Self {
            map,
            queue: open_queue(&map.device, DEPTH),
            rest: ranges.into_iter().filter(|range| !range.is_empty()).collect(),
            runs: VecDeque::new(),
            at: 0,
            left: (0, 0),
            in_flight: 0,
            done: Vec::new(),
            single: AlignedBuf::zeroed(map.block_size as usize),
        }
    }

    /// Returns the next block and its contents; `None` after the last.
    ///
    /// # Errors
    /// The block cannot be read, or the journal has no such block.
    pub(super) fn read_next(&mut self) -> Result<Option<(LogBlock, &[u8])>> {
        if self.runs.front().is_none_or(|run| run.blocks == self.at) {
            self.leave_run();
            self.request();
        }
        while self.runs.front().is_some_and(|run| matches!(run.contents, Contents::InFlight)) {
            self.harvest()?;
        }
        let Some(run) = self.runs.front() else { return Ok(None) };
        let (log, size) = (run.first + self.at, self.map.block_size as usize);
        let nth = self.at as usize;
        self.at += 1;
        if let Contents::Read(bytes) = &run.contents {
            return Ok(Some((log, &bytes[nth * size..][..size])));
        }
        let (offset, _) = self.map.place(log)?;
        let read = self.map.device.read_at(offset, &mut [IoSliceMut::new(&mut self.single)]);
        read.map_err(|e| Error::device("reading the journal", e))?;
        Ok(Some((log, &self.single)))
    }

    /// Drops the first run, which the reader has consumed.
    fn leave_run(&mut self) {
        if let Some(run) = self.runs.pop_front() {
            self.left = (self.left.0 + 1, self.left.1 + self.bytes_of(run.blocks));
            self.at = 0;
        }
    }

    /// Requests further runs, up to the limit of bytes in flight.
    fn request(&mut self) {
        let limit = self.left.1.clamp(AHEAD.0, AHEAD.1);
        while let Some(range) = self.rest.front_mut()
            && self.in_flight < limit
        {
            let (first, most) = (range.start, (limit - self.in_flight).min(RUN_BYTES));
            let most = saturating_u32(most / u64::from(self.map.block_size)).max(1);
            let place = self.map.place(first);
            // A block that the journal does not have is a run of its own, which fails when the
            // reader reaches it.
            let together = place.as_ref().map_or(1, |&(_, together)| together);
            let blocks = together.min(most).min(range.end - first);
            range.start += blocks;
            if range.is_empty() {
                self.rest.pop_front();
            }
            let mut run = Run { first, blocks, contents: Contents::Failed };
            if let Ok((offset, _)) = place {
                let len = to_usize(self.bytes_of(blocks));
                let op = Op::Read { offset, buf: AlignedBuf::zeroed(len), len };
                let token = self.left.0 + self.runs.len() as u64;
                self.queue.submit(Request { token, op });
                self.in_flight += len as u64;
                run.contents = Contents::InFlight;
            }
            self.runs.push_back(run);
        }
    }

    /// Blocks until a request has completed.
    fn harvest(&mut self) -> Result<()> {
        let harvested = self.queue.harvest(true, &mut self.done);
        harvested.map_err(|e| Error::device("reading the journal", e))?;
        for done in self.done.drain(..) {
            let Op::Read { buf, len, .. } = done.op else { continue };
            self.in_flight -= len as u64;
            let nth = to_usize(done.token - self.left.0);
            if let Some(run) = self.runs.get_mut(nth) {
                run.contents = if done.result.is_ok() { Contents::Read(buf) } else { Contents::Failed };
            }
        }
        Ok(())
    }

    fn bytes_of(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.map.block_size)
    }
}

//! Performs many requests on a device, with a limited number in flight.

use parext4_device::{AlignedBuf, Device, Done, Op, Request, Segment, open_queue};

use crate::error::{Error, Result};
use crate::sync::Arc;

/// A sequence of requests, each made when the device queue has room for it.
pub(super) trait Requests {
    /// Returns the next request; `None` after the last.
    fn next(&mut self) -> Option<Request>;

    /// Receives a request that has completed, and returns its result.
    fn end(&mut self, done: Done) -> Result<()>;
}

/// Performs `requests` through a queue, up to `depth` at a time. Returns once all have completed,
/// and makes no further request after a failure.
///
/// # Errors
/// The first failure.
pub(super) fn perform(device: &Arc<dyn Device>, depth: u32, requests: &mut impl Requests) -> Result<()> {
    let mut queue = open_queue(device, depth);
    let (mut done, mut result) = (Vec::new(), Ok(()));
    loop {
        while result.is_ok() && queue.in_flight() < depth as usize {
            let Some(request) = requests.next() else { break };
            queue.submit(request);
        }
        if queue.in_flight() == 0 {
            return result;
        }
        queue.harvest(true, &mut done).map_err(|e| Error::device("waiting for the device", e))?;
        for done in done.drain(..) {
            result = result.and(requests.end(done));
        }
    }
}

/// Number of requests in flight of [`write_sorted`].
const DEPTH: u32 = 64;
/// Limit of one write, in blocks.
const RUN: usize = 256;

/// Contents of a block, and their offset on the device in bytes.
pub(super) type BlockWrite = (u64, Arc<AlignedBuf>);

/// Writes blocks to a device. They must be sorted by their offsets, which differ. Writes
/// consecutive blocks by one request.
///
/// # Errors
/// A failed write, whose error names the operation `doing`. Which of the other writes were made is
/// undefined.
pub(super) fn write_sorted(
    device: &Arc<dyn Device>,
    doing: &'static str,
    blocks: &[BlockWrite],
) -> Result<()> {
    perform(device, DEPTH, &mut SortedWrites { doing, rest: blocks })
}

struct SortedWrites<'a> {
    doing: &'static str,
    rest: &'a [BlockWrite],
}

impl Requests for SortedWrites<'_> {
    fn next(&mut self) -> Option<Request> {
        let &(offset, _) = self.rest.first()?;
        let ends = self.rest.iter().map(|(offset, bytes)| offset + bytes.len() as u64);
        let gap = ends.zip(&self.rest[1..]).take(RUN - 1).position(|(end, &(next, _))| end != next);
        let len = gap.map_or(self.rest.len().min(RUN), |last| last + 1);
        let (run, rest) = self.rest.split_at(len);
        self.rest = rest;
        let segments = run.iter().map(|(_, bytes)| Segment::whole(Arc::clone(bytes))).collect();
        Some(Request { token: 0, op: Op::Write { offset, segments } })
    }

    fn end(&mut self, done: Done) -> Result<()> {
        done.result.map_err(|e| Error::device(self.doing, e))
    }
}

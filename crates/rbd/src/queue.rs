//! [`RbdQueue`]: many requests in flight on an image, completed by librbd's threads.
//!
//! 1. `submit` checks a request and appends it to the backlog.
//! 2. `harvest` starts requests while fewer than `depth` are in flight. It joins writes that are
//!    neighbours in the backlog and in one object of the image.
//! 3. librbd's callback moves a completed request to [`Completions`], and wakes the owner if it
//!    waits.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parext4_device::{Batch, Device, Done, JoinLimits, Op, Queue, QueueWaker, Request};

use crate::completions::Completions;
use crate::image_io::ImageIo;

/// Largest depth. More requests at a time do not make an image faster.
const MAX_DEPTH: u32 = 1024;
/// Limit of joined writes in bytes. They also end where an object ends, because librbd sends one
/// message for each object.
const JOINED_BYTES: usize = 1 << 20;
const JOINED_SEGMENTS: usize = 1024;

#[derive(Debug)]
pub(crate) struct RbdQueue {
    // The device is dropped with the queue, after the requests have ended.
    device: Arc<dyn Device>,
    io: Arc<ImageIo>,
    limits: JoinLimits,
    /// Requests that are not started, with their lengths in bytes.
    backlog: VecDeque<(Request, usize)>,
    /// Completions of requests that needed no call of librbd.
    ready: Vec<Done>,
    completions: Arc<Completions>,
    depth: usize,
    /// Number of batches in flight.
    batches: usize,
    in_flight: usize,
}

impl RbdQueue {
    /// Opens a queue of `device`, whose requests go through `io`.
    pub(crate) fn new(device: Arc<dyn Device>, io: Arc<ImageIo>, depth: u32) -> Self {
        let completions = Arc::new(Completions::new(Arc::clone(&io.fence), io.read_only));
        let limits =
            JoinLimits { bytes: JOINED_BYTES, segments: JOINED_SEGMENTS, object_size: device.object_size() };
        let depth = depth.clamp(1, MAX_DEPTH) as usize;
        let (backlog, ready) = Default::default();
        Self { device, io, limits, backlog, ready, completions, depth, batches: 0, in_flight: 0 }
    }

    /// Checks a request and returns its length in bytes, or `None` if there is nothing to do for
    /// it.
    fn check(&self, op: &Op) -> io::Result<Option<usize>> {
        let len = op.check(&*self.device)?;
        Ok(match op {
            Op::Flush => (!self.device.read_only()).then_some(0),
            _ => (len > 0).then_some(len),
        })
    }

    /// Starts requests of the backlog until `depth` are in flight.
    fn start(&mut self) {
        while self.batches < self.depth
            && let Some(batch) = Batch::take(&mut self.backlog, &self.limits)
        {
            self.batches += 1;
            self.io.start(batch, &self.completions);
        }
    }
}

impl Queue for RbdQueue {
    fn submit(&mut self, request: Request) {
        self.in_flight += 1;
        match self.check(&request.op) {
            Ok(Some(len)) => self.backlog.push_back((request, len)),
            Ok(None) => self.ready.push(request.done(Ok(()))),
            Err(error) => self.ready.push(request.done(Err(error))),
        }
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        let before = done.len();
        done.append(&mut self.ready);
        self.start();
        self.batches -= self.completions.take(wait && done.len() == before, done);
        // Starts requests first, which keeps the image busy while the owner handles the
        // completions.
        self.start();
        self.in_flight -= done.len() - before;
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn cancel(&mut self, token: u64) -> bool {
        let place = self.backlog.iter().position(|(request, _)| request.token == token);
        let request = place.and_then(|place| self.backlog.remove(place));
        let found = request.is_some();
        self.ready.extend(request.map(|(request, _)| request.canceled()));
        found
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(Arc::clone(&self.completions))
    }
}

impl Drop for RbdQueue {
    /// Blocks until librbd has called back for all requests, because it uses their buffers.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 && self.harvest(true, &mut done).is_ok() {
            done.clear();
        }
    }
}

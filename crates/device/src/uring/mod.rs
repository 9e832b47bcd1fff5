//! The queue of a file: one io_uring per queue.
//!
//! 1. `submit` checks a request and appends it to the backlog.
//! 2. `harvest` moves requests from the backlog to the ring while the ring has room, and joins
//!    writes that are neighbours in the backlog and on the device.
//! 3. It enters the kernel once, to submit and to wait.
//! 4. It reaps completions. A short transfer continues in the ring.

mod ring;
mod transfer;
mod wake_fd;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use crate::alignment::Alignment;
use crate::batch::{Batch, JoinLimits};
use crate::device::Device;
use crate::queue::{Queue, QueueWaker, drain};
use crate::request::{Done, Op, Request};
use ring::{Completion, Ring};
use transfer::Transfer;
use wake_fd::WakeFd;

/// Largest depth. More requests at a time do not make a device faster.
const MAX_DEPTH: u32 = 4096;
/// Limits of joined writes. Larger requests are no faster, and fewer requests would use less of the
/// device's parallelism. A system call accepts 1024 segments.
const JOINED: JoinLimits = JoinLimits { bytes: 256 << 10, segments: 1024, object_size: None };

/// The file that holds a volume, as a ring needs it.
pub(crate) struct VolumeFile<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    /// Start of the volume in the file, bytes.
    pub(crate) base: u64,
    /// Alignment that direct I/O demands, if the file is open for it.
    pub(crate) alignment: Option<Alignment>,
}

pub(crate) struct UringQueue {
    // The ring is dropped before `device`, which closes the file.
    ring: Ring,
    device: Arc<dyn Device>,
    /// Start of the volume in the file, bytes.
    base: u64,
    alignment: Option<Alignment>,
    /// Requests that are not in the ring yet, with their lengths in bytes.
    backlog: VecDeque<(Request, usize)>,
    /// Number of requests in the ring; joined writes count one each.
    started: usize,
    /// Completions that did not need the kernel.
    ready: Vec<Done>,
    wake_fd: Arc<WakeFd>,
}

impl UringQueue {
    /// Opens a ring on the file of a volume. `device` is the volume: it checks requests and keeps
    /// the file open.
    ///
    /// # Errors
    /// The kernel has no io_uring, forbids it, or lacks one of the operations.
    pub(crate) fn new(device: Arc<dyn Device>, volume: VolumeFile<'_>, depth: u32) -> io::Result<Self> {
        let wake_fd = Arc::new(WakeFd::new()?);
        let ring = Ring::new(volume.fd, wake_fd.clone(), depth.clamp(1, MAX_DEPTH))?;
        let VolumeFile { base, alignment, .. } = volume;
        let (backlog, ready) = Default::default();
        Ok(Self { ring, device, base, alignment, backlog, started: 0, ready, wake_fd })
    }

    /// Checks a request and returns its length in bytes, or `None` if the kernel has nothing to do
    /// for it.
    fn check(&self, op: &Op) -> io::Result<Option<usize>> {
        let len = op.check(&*self.device)?;
        Ok(match op {
            Op::Flush => (!self.device.read_only()).then_some(0),
            Op::Read { .. } | Op::Write { .. } => (len > 0).then_some(len),
        })
    }

    /// Moves requests from the backlog to the ring while the ring has room.
    fn start(&mut self) {
        while self.ring.has_room()
            && let Some(batch) = Batch::take(&mut self.backlog, &JOINED)
        {
            self.started += batch.len();
            self.ring.start(Transfer::new(batch, self.base, self.alignment));
        }
    }

    /// Reaps the kernel's completions. A transfer that is not complete enters the ring again.
    fn reap(&mut self, done: &mut Vec<Done>) {
        while let Some(completion) = self.ring.reap() {
            match completion {
                Completion::Wake => self.ring.listen(),
                Completion::Transfer(mut transfer, result) => match transfer.advance(result) {
                    Some(result) => self.started -= transfer.end(result, done),
                    None => self.ring.start(transfer),
                },
            }
        }
    }
}

impl Queue for UringQueue {
    fn submit(&mut self, request: Request) {
        match self.check(&request.op) {
            Ok(Some(len)) => self.backlog.push_back((request, len)),
            Ok(None) => self.ready.push(request.done(Ok(()))),
            Err(error) => self.ready.push(request.done(Err(error))),
        }
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        let before = done.len();
        done.append(&mut self.ready);
        loop {
            self.start();
            let woken = wait && self.wake_fd.take();
            self.ring.enter(wait && !woken && done.len() == before)?;
            self.reap(done);
            // An event loop may wait on the ring next, so the kernel must have all that `reap` has
            // queued.
            if !wait && self.ring.has_queued() {
                self.ring.enter(false)?;
            }
            if !wait || woken || done.len() > before {
                return Ok(());
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.ready.len() + self.backlog.len() + self.started
    }

    fn cancel(&mut self, token: u64) -> bool {
        let place = self.backlog.iter().position(|(request, _)| request.token == token);
        let request = place.and_then(|place| self.backlog.remove(place));
        let found = request.is_some();
        self.ready.extend(request.map(|(request, _)| request.canceled()));
        found
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(self.wake_fd.clone())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn arm(&mut self) {
        self.wake_fd.take();
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        drain(self);
    }
}

impl fmt::Debug for UringQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringQueue")
            .field("device", &self.device)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

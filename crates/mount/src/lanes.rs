//! Threads that each keep many reads and writes under way on the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parext4::device::AlignedBuf;
use parext4::{Completion, File, IoFlags, IoQueue, IoRequest, IoWaker, Volume};
use slab::Slab;

use crate::buffers::Buffers;
use crate::failure::Outcome;

/// Requests of one lane on the device at a time.
const DEPTH: u32 = 128;
/// More lanes find no more work.
const MOST: usize = 4;
/// A lane that has so much under way shares what comes next with others. What comes together to one lane takes one system
/// call, so it is better off there until the thread itself is short of time.
const FULL: usize = 48;

/// What is done when a request is over, with its result and its buffer. Must not wait.
type Done = Box<dyn FnOnce(Outcome<u64>, Option<&AlignedBuf>) + Send>;

struct Job {
    file: File,
    request: IoRequest,
    done: Done,
}

/// A thread with a queue of its own. Dropped, it ends when all it was given is done.
#[derive(Debug)]
struct Lane {
    jobs: Option<Sender<Job>>,
    waker: IoWaker,
    thread: Option<JoinHandle<()>>,
    under_way: Arc<AtomicUsize>,
}

/// All lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    buffers: Arc<Buffers>,
}

/// Counts a request as under way until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    pub fn new(volume: &Volume) -> std::io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let buffers = Arc::default();
        let lanes =
            (0..processors.min(MOST)).map(|_| Lane::start(volume, &buffers)).collect::<Result<_, _>>()?;
        Ok(Self { lanes, buffers })
    }

    /// Requests that were given and are not over.
    pub fn under_way(&self) -> usize {
        self.lanes.iter().map(Lane::under_way).sum()
    }

    /// Who takes the next request.
    fn next(&self) -> Option<&Lane> {
        let with_room = self.lanes.iter().find(|lane| lane.under_way() < FULL);
        with_room.or_else(|| self.lanes.iter().min_by_key(|lane| lane.under_way()))
    }

    /// A buffer for a request, of at least `len` bytes with any contents.
    pub fn buffer(&self, len: usize) -> AlignedBuf {
        self.buffers.take(len)
    }

    /// Begins a read or write and calls `done` when it is over, from a thread that must not wait. If the lane has
    /// failed, `done` is dropped.
    pub fn give(
        &self,
        file: File,
        request: IoRequest,
        done: impl FnOnce(Outcome<u64>, Option<&AlignedBuf>) + Send + 'static,
    ) {
        let Some(lane) = self.next() else { return };
        let counted = Counted::new(&lane.under_way);
        let done = Box::new(move |result, buf: Option<&AlignedBuf>| {
            done(result, buf);
            drop(counted);
        });
        if let Some(jobs) = &lane.jobs
            && jobs.send(Job { file, request, done }).is_ok()
        {
            lane.waker.wake();
        }
    }

    /// Waits until all that was given is done, and takes nothing more.
    pub fn finish(&mut self) {
        self.lanes.clear();
    }
}

impl Lane {
    fn start(volume: &Volume, buffers: &Arc<Buffers>) -> std::io::Result<Self> {
        let (jobs, work) = unbounded();
        let queue = volume.io_queue(DEPTH);
        let (waker, buffers) = (queue.waker(), Arc::clone(buffers));
        let thread = std::thread::Builder::new()
            .name("parext4-lane".into())
            .spawn(move || run(queue, &work, &buffers))?;
        Ok(Self { jobs: Some(jobs), waker, thread: Some(thread), under_way: Arc::default() })
    }

    /// Relaxed: an estimate will do.
    fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a thread for reads and writes panicked");
        }
    }
}

/// Until nobody can give work any more and all is done.
fn run(mut queue: IoQueue, work: &Receiver<Job>, buffers: &Buffers) {
    let mut under_way: Slab<Done> = Slab::new();
    let mut over: Vec<Completion> = Vec::new();
    loop {
        let mut next = match queue.in_flight() {
            0 => match work.recv() {
                Ok(job) => Some(job),
                Err(_) => return,
            },
            _ => work.try_recv().ok(),
        };
        while let Some(Job { file, request, done }) = next {
            let token = under_way.insert(done) as u64;
            queue.submit(&file, request, token, IoFlags::default());
            next = work.try_recv().ok();
        }
        if let Err(error) = queue.harvest(true, &mut over) {
            tracing::error!("{error}");
            return;
        }
        for Completion { token, result, buf } in over.drain(..) {
            let done = usize::try_from(token).ok().and_then(|key| under_way.try_remove(key));
            if let Some(done) = done {
                done(result.map_err(Into::into), buf.as_ref());
            }
            buf.into_iter().for_each(|buf| buffers.give_back(buf));
        }
    }
}

//! Threads that each keep many reads and writes in flight on the device, through an [`IoQueue`].

use std::sync::Arc;
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, Sender, unbounded};
use parext4::device::AlignedBuf;
use parext4::{Completion, DirectFile, IoFlags, IoQueue, IoRequest, IoWaker, Volume};
use parext4_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use slab::Slab;

use super::shared_buffers::SharedBuffers;
use crate::protocol::{Failure, Outcome};

/// Limit of requests that one queue has on the device.
const QUEUE_DEPTH: u32 = 128;
/// Limit of queue threads. More of them gain nothing.
const MAX_THREADS: usize = 4;
/// Number of requests in flight up to which a thread also gets the next request, because requests
/// that one thread submits together share a system call. Above it, the thread itself is the
/// bottleneck.
const BUSY: usize = 48;

/// Callback for a finished request, with the result and the buffer. It must not block.
type OnDone = Box<dyn FnOnce(Outcome<u64>, Option<&AlignedBuf>) + Send>;

struct Job {
    file: DirectFile,
    request: IoRequest,
    on_done: OnDone,
}

/// A thread with an [`IoQueue`]. Dropping it completes its requests and joins the thread.
#[derive(Debug)]
struct QueueThread {
    jobs: Option<Sender<Job>>,
    waker: IoWaker,
    thread: Option<JoinHandle<()>>,
    in_flight: Arc<AtomicUsize>,
    has_failed: Arc<AtomicBool>,
}

/// All queue threads.
#[derive(Debug)]
pub(crate) struct QueueThreads {
    threads: ArcSwap<Vec<QueueThread>>,
    buffers: Arc<SharedBuffers>,
}

/// Counts a request as in flight until it is dropped.
struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl QueueThreads {
    /// Starts a thread for each processor, up to [`MAX_THREADS`]. They release the buffers of
    /// requests to `buffers`.
    pub fn start(volume: &Volume, buffers: &Arc<SharedBuffers>) -> std::io::Result<Self> {
        let queues = Self { threads: ArcSwap::default(), buffers: Arc::clone(buffers) };
        queues.restart(volume)?;
        Ok(queues)
    }

    /// Starts the threads for a volume. They replace the running threads.
    pub fn restart(&self, volume: &Volume) -> std::io::Result<()> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |_| QueueThread::start(volume, &self.buffers);
        let threads = (0..processors.min(MAX_THREADS)).map(start).collect::<Result<_, _>>()?;
        self.threads.store(Arc::new(threads));
        Ok(())
    }

    /// Returns the number of requests that were submitted and are not done.
    pub fn in_flight(&self) -> usize {
        self.threads.load().iter().map(QueueThread::in_flight).sum()
    }

    /// Returns true if a thread can execute requests. Otherwise workers execute them.
    pub fn are_usable(&self) -> bool {
        usable(&self.threads.load()).next().is_some()
    }

    /// Starts a read or write. Its thread calls `on_done` with the result; `on_done` must not
    /// block. If the queue fails, the result is `EIO`.
    pub fn submit(
        &self,
        file: DirectFile,
        request: IoRequest,
        on_done: impl FnOnce(Outcome<u64>, Option<&AlignedBuf>) + Send + 'static,
    ) {
        let threads = self.threads.load();
        let Some(thread) = pick(&threads) else { return on_done(Err(Failure::IO), None) };
        let in_flight = InFlight::new(&thread.in_flight);
        let on_done = Box::new(move |result, buf: Option<&AlignedBuf>| {
            on_done(result, buf);
            drop(in_flight);
        });
        if let Some(jobs) = &thread.jobs
            && jobs.send(Job { file, request, on_done }).is_ok()
        {
            thread.waker.wake();
        }
    }

    /// Completes all requests and joins the threads. Requests that are submitted later fail with
    /// `EIO`.
    pub fn stop(&self) {
        drop(self.threads.swap(Arc::default()));
    }
}

/// Returns the threads whose queue has not failed.
fn usable(threads: &[QueueThread]) -> impl Iterator<Item = &QueueThread> {
    threads.iter().filter(|thread| !thread.has_failed.load(Ordering::Relaxed))
}

/// Picks the thread for the next request: the first that is not busy, else the one with the fewest
/// requests.
fn pick(threads: &[QueueThread]) -> Option<&QueueThread> {
    let with_room = usable(threads).find(|thread| thread.in_flight() < BUSY);
    with_room.or_else(|| usable(threads).min_by_key(|thread| thread.in_flight()))
}

impl QueueThread {
    fn start(volume: &Volume, buffers: &Arc<SharedBuffers>) -> std::io::Result<Self> {
        let (sender, jobs) = unbounded();
        let queue = volume.io_queue(QUEUE_DEPTH);
        let (waker, buffers) = (queue.waker(), Arc::clone(buffers));
        let has_failed = Arc::<AtomicBool>::default();
        let fails = Arc::clone(&has_failed);
        let thread = std::thread::Builder::new()
            .name("parext4-queue".into())
            .spawn(move || run(queue, &jobs, &buffers, &fails))?;
        Ok(Self { jobs: Some(sender), waker, thread: Some(thread), in_flight: Arc::default(), has_failed })
    }

    /// Returns the number of requests in flight. The load is relaxed, because an estimate suffices.
    fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl Drop for QueueThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("a queue thread panicked");
        }
    }
}

/// Submits jobs and completes them, until the sender of jobs is dropped and all are done. If the
/// queue fails, sets `has_failed`, and fails its requests and the jobs that were submitted before
/// other threads saw the flag.
fn run(mut queue: IoQueue, jobs: &Receiver<Job>, buffers: &SharedBuffers, has_failed: &AtomicBool) {
    let mut in_flight: Slab<OnDone> = Slab::new();
    let mut completions: Vec<Completion> = Vec::new();
    loop {
        let mut next = match queue.in_flight() {
            0 => match jobs.recv() {
                Ok(job) => Some(job),
                Err(_) => return,
            },
            _ => jobs.try_recv().ok(),
        };
        while let Some(Job { file, request, on_done }) = next {
            let token = in_flight.insert(on_done) as u64;
            queue.submit(&file, request, token, IoFlags::new());
            next = jobs.try_recv().ok();
        }
        if let Err(error) = queue.harvest(&mut completions) {
            log::error!("the device queue of the mount failed: {error}");
            has_failed.store(true, Ordering::Relaxed);
            in_flight.drain().for_each(|on_done| on_done(Err(Failure::IO), None));
            jobs.try_iter().for_each(|job| (job.on_done)(Err(Failure::IO), None));
            // This blocks while the device has requests, and then releases the ranges of the
            // operations. It stops the volume if the device had writes, whose results are unknown.
            drop(queue);
            jobs.iter().for_each(|job| (job.on_done)(Err(Failure::IO), None));
            return;
        }
        for Completion { token, result, buf, .. } in completions.drain(..) {
            let on_done = usize::try_from(token).ok().and_then(|key| in_flight.try_remove(key));
            if let Some(on_done) = on_done {
                on_done(result.map_err(Into::into), buf.as_ref());
            }
            buf.into_iter().for_each(|buf| buffers.release(buf));
        }
    }
}

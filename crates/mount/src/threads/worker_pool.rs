//! Threads for jobs on which request threads must not block.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4_sync::thread::Builder;
use parext4_sync::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// Number of threads that stay when they have no job.
const KEPT: usize = 8;
/// Time after which the threads above [`KEPT`] end, if more than [`KEPT`] threads have had no job
/// for so long. A thread keeps memory, and makes it slower to replace the map of a file: the
/// replacing thread checks for each thread whether it reads the map.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// A thread pool that starts a thread when all its threads are busy, up to a limit, and ends
/// threads that have had no job for [`IDLE_TIME`].
#[derive(Debug)]
pub(crate) struct WorkerPool {
    name: &'static str,
    /// Limit of threads. Further jobs queue.
    max_threads: usize,
    idle_time: Duration,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<PoolState>,
    /// Condition that is notified of each job, and when the pool is joined.
    wake: Condvar,
    /// Condition that is notified when a thread ends.
    ended: Condvar,
}

struct PoolState {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Number of threads that wait for a job.
    idle: usize,
    /// Number of jobs that are queued or run.
    unfinished: usize,
    /// Time at which the queued jobs last left fewer than [`KEPT`] threads idle.
    busy: Instant,
    joined: bool,
}

impl WorkerPool {
    /// Returns a pool of at most `max_threads` threads of this name, without threads yet.
    pub fn new(name: &'static str, max_threads: usize) -> Self {
        let state = PoolState {
            jobs: VecDeque::new(),
            threads: 0,
            idle: 0,
            unfinished: 0,
            busy: Instant::now(),
            joined: false,
        };
        let shared = Shared { state: Mutex::new(state), wake: Condvar::new(), ended: Condvar::new() };
        Self { name, max_threads, idle_time: IDLE_TIME, shared: Arc::new(shared) }
    }

    /// Queues a job. Drops it without running it if the pool was [joined](Self::join).
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        if state.joined {
            return;
        }
        state.jobs.push_back(Box::new(job));
        state.unfinished += 1;
        let queued = state.jobs.len();
        if state.idle < queued + KEPT {
            state.busy = Instant::now();
        }
        if queued > state.idle && state.threads < self.max_threads && self.start_thread() {
            state.threads += 1;
        }
        self.shared.wake.notify_one();
    }

    /// Starts a thread, which blocks until the caller releases the state. Returns false if the
    /// system refuses it.
    fn start_thread(&self) -> bool {
        let (shared, idle_time) = (Arc::clone(&self.shared), self.idle_time);
        let started = Builder::new().name(self.name.into()).spawn(move || shared.run(idle_time));
        started.inspect_err(|error| log::warn!("cannot start another thread: {error}")).is_ok()
    }

    /// Returns the number of jobs that are queued or run.
    pub fn unfinished(&self) -> usize {
        self.shared.state.lock().unfinished
    }

    /// Runs all queued jobs, and waits until the threads have ended.
    pub fn join(&self) {
        let mut state = self.shared.state.lock();
        state.joined = true;
        self.shared.wake.notify_all();
        while state.threads > 0 {
            self.shared.ended.wait(&mut state);
        }
    }
}

impl Drop for WorkerPool {
    /// Makes the threads end once all queued jobs have run.
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        self.shared.state.lock().joined = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    /// Runs jobs in a thread of the pool until the thread must end.
    fn run(&self, idle_time: Duration) {
        let _end = ThreadEnd(self);
        while let Some(job) = self.next(idle_time) {
            let _finished = JobEnd(self);
            job();
        }
    }

    /// Blocks until a job is queued, and returns it. Returns `None` if the thread must end.
    fn next(&self, idle_time: Duration) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            let is_needless = state.idle >= KEPT && state.busy.elapsed() >= idle_time;
            if state.joined || is_needless {
                return None;
            }
            state.idle += 1;
            self.wake.wait_for(&mut state, idle_time);
            state.idle -= 1;
        }
    }
}

/// Counts a thread as ended when it is dropped, also by a panic.
struct ThreadEnd<'a>(&'a Shared);

impl Drop for ThreadEnd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if cfg!(shuttle) {
                // A failed model is being torn down: its primitives no longer work.
                return;
            }
            log::error!("a worker thread panicked");
        }
        self.0.state.lock().threads -= 1;
        self.0.ended.notify_all();
    }
}

/// Counts a job as finished when it is dropped.
struct JobEnd<'a>(&'a Shared);

impl Drop for JobEnd<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        self.0.state.lock().unfinished -= 1;
    }
}

impl fmt::Debug for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("threads", &self.threads)
            .field("idle", &self.idle)
            .field("unfinished", &self.unfinished)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4_sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Barrier;

    const MAX_THREADS: usize = 64;

    #[test]
    fn jobs_that_block_on_each_other_all_get_a_thread() {
        let pool = WorkerPool::new("test", MAX_THREADS);
        let barrier = Arc::new(Barrier::new(MAX_THREADS));
        for _ in 0..MAX_THREADS {
            let barrier = Arc::clone(&barrier);
            pool.spawn(move || {
                barrier.wait();
            });
        }
        pool.join();
    }

    #[test]
    fn threads_end_that_have_had_no_job_for_a_while() {
        let mut pool = WorkerPool::new("test", MAX_THREADS);
        pool.idle_time = Duration::from_millis(1);
        let barrier = Arc::new(Barrier::new(MAX_THREADS + 1));
        for _ in 0..MAX_THREADS {
            let barrier = Arc::clone(&barrier);
            pool.spawn(move || {
                barrier.wait();
            });
        }
        assert_eq!(pool.shared.state.lock().threads, MAX_THREADS);
        barrier.wait();
        let is_small = || pool.shared.state.lock().threads == KEPT;
        assert!(testkit::poll::until(is_small), "{pool:?}");
        pool.join();
        assert_eq!(pool.shared.state.lock().threads, 0);
    }

    #[test]
    fn join_runs_all_queued_jobs() {
        let pool = WorkerPool::new("test", MAX_THREADS);
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            let done = Arc::clone(&done);
            pool.spawn(move || {
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        pool.join();
        assert_eq!(done.load(Ordering::Relaxed), 1000);
        pool.spawn(|| panic!("the pool was joined"));
    }
}

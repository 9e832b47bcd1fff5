//! Threads for jobs that the threads which read requests must not block on.

use std::sync::Arc;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Builder, JoinHandle, Mutex, Receiver, Sender, unbounded};

type Job = Box<dyn FnOnce() + Send>;

/// A thread pool that starts a thread when all its threads are busy, up to a limit. Its threads run until [`join`](Self::join).
#[derive(Debug)]
pub(crate) struct WorkerPool {
    name: &'static str,
    /// Limit of threads. Jobs above it queue.
    max_threads: usize,
    /// `None` once the pool was joined.
    sender: Mutex<Option<Sender<Job>>>,
    jobs: Receiver<Job>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Jobs that are queued or run.
    unfinished: Arc<AtomicUsize>,
}

impl WorkerPool {
    /// Returns a pool of at most `max_threads` threads of this name. Starts none.
    pub fn new(name: &'static str, max_threads: usize) -> Self {
        let (sender, jobs) = unbounded();
        Self {
            name,
            max_threads,
            sender: Mutex::new(Some(sender)),
            jobs,
            threads: Mutex::default(),
            unfinished: Arc::new(AtomicUsize::new(0)),
        }
    }

    /// Queues a job. Drops it without running it if the pool was [joined](Self::join).
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        let sender = self.sender.lock();
        let Some(sender) = &*sender else { return };
        // Relaxed: a stale count starts one thread too many or too late, which the next job makes up for.
        let unfinished = self.unfinished.fetch_add(1, Ordering::Relaxed) + 1;
        let mut threads = self.threads.lock();
        if unfinished > threads.len() && threads.len() < self.max_threads {
            threads.extend(self.start_thread());
        }
        assert!(sender.send(Box::new(job)).is_ok(), "the pool holds a receiver");
    }

    fn start_thread(&self) -> Option<JoinHandle<()>> {
        let (jobs, unfinished) = (self.jobs.clone(), Arc::clone(&self.unfinished));
        let run = move || {
            for job in jobs {
                job();
                unfinished.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let started = Builder::new().name(self.name.into()).spawn(run);
        started.inspect_err(|error| tracing::warn!("cannot start another thread: {error}")).ok()
    }

    /// Returns the number of jobs that are queued or run.
    pub fn unfinished(&self) -> usize {
        self.unfinished.load(Ordering::Relaxed)
    }

    /// Runs all queued jobs and joins the threads.
    pub fn join(&self) {
        drop(self.sender.lock().take());
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

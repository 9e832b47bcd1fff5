//! Threads that do what the threads which take requests must not wait for.

use std::sync::Arc;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Builder, JoinHandle, Mutex, Receiver, Sender, unbounded};

/// Something to do.
type Job = Box<dyn FnOnce() + Send>;

/// Threads that are started when all others are busy, and stay.
#[derive(Debug)]
pub(crate) struct Workers {
    name: &'static str,
    /// Limit of threads. Jobs above it queue.
    most: usize,
    /// Until the end.
    jobs: Mutex<Option<Sender<Job>>>,
    work: Receiver<Job>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Jobs given and not over.
    unfinished: Arc<AtomicUsize>,
}

impl Workers {
    /// At most `most` threads of this name.
    pub fn new(name: &'static str, most: usize) -> Self {
        let (jobs, work) = unbounded();
        Self {
            name,
            most,
            jobs: Mutex::new(Some(jobs)),
            work,
            threads: Mutex::default(),
            unfinished: Arc::new(AtomicUsize::new(0)),
        }
    }

    /// Has a thread do `job`, now or when one is free. Dropped undone after [`finish`](Self::finish).
    pub fn give(&self, job: impl FnOnce() + Send + 'static) {
        let jobs = self.jobs.lock();
        let Some(jobs) = &*jobs else { return };
        // Relaxed: an estimate too low or too high makes one thread less or more, for the moment.
        let unfinished = self.unfinished.fetch_add(1, Ordering::Relaxed) + 1;
        let mut threads = self.threads.lock();
        if unfinished > threads.len() && threads.len() < self.most {
            threads.extend(self.start());
        }
        assert!(jobs.send(Box::new(job)).is_ok(), "the receiver is here");
    }

    fn start(&self) -> Option<JoinHandle<()>> {
        let (work, unfinished) = (self.work.clone(), Arc::clone(&self.unfinished));
        let run = move || {
            for job in work {
                job();
                unfinished.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let started = Builder::new().name(self.name.into()).spawn(run);
        started.inspect_err(|error| tracing::warn!("no further thread: {error}")).ok()
    }

    /// Jobs that were given and are not over.
    pub fn unfinished(&self) -> usize {
        self.unfinished.load(Ordering::Relaxed)
    }

    /// Waits until all that was given is done.
    pub fn finish(&self) {
        drop(self.jobs.lock().take());
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const MOST: usize = 64;

    #[test]
    fn jobs_that_wait_for_each_other_all_get_a_thread() {
        let workers = Workers::new("test", MOST);
        let together = Arc::new(Barrier::new(MOST));
        for _ in 0..MOST {
            let together = Arc::clone(&together);
            workers.give(move || {
                together.wait();
            });
        }
        workers.finish();
    }

    #[test]
    fn all_that_was_given_is_done() {
        let workers = Workers::new("test", MOST);
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            let done = Arc::clone(&done);
            workers.give(move || {
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        workers.finish();
        assert_eq!(done.load(Ordering::Relaxed), 1000);
        workers.give(|| panic!("it is over"));
    }
}

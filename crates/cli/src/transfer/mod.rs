//! Copies many files, and the chunks of large ones, by several threads.
//!
//! One thread walks the tree and submits [`Job`]s; workers start them. A worker that starts a large file
//! asks the other workers for help; they copy chunks of it before they start files of their own. So neither a million
//! small files nor a single large one leaves a thread idle.

mod chunks;

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use anyhow::{Result, bail};
use crossbeam_channel::{Receiver, Sender, select_biased};
use parext4::device::AlignedBuf;

use chunks::Chunks;
pub use chunks::{CHUNK, Copy, GRAIN};

/// The largest number of runs of data in a sparse file of an archive.
pub const MOST_RUNS: usize = 1 << 20;

/// The largest number of jobs that wait. With many fewer, the thread that walks the tree and the workers wake each other for each small
/// file. With many more, the directories that jobs keep open may exceed the limit of open files, of 1024 by default.
const WAITING: usize = 128;

/// A file to copy.
pub trait Job: Send {
    /// The file once it is open.
    type Copy: Copy;
    /// State that a thread keeps from one job to the next.
    type State: WorkerState;

    /// Opens source and destination. Returns `None` if `state` copies the file.
    fn start(self, state: &mut Self::State) -> Result<Option<Self::Copy>>;
}

/// State that a thread keeps from one job to the next.
pub trait WorkerState {
    /// Completes the files that are left, after the thread's last job.
    fn finish(self) -> Result<()>;
}

impl WorkerState for () {
    fn finish(self) -> Result<()> {
        Ok(())
    }
}

/// Queue for jobs.
pub struct Submit<'a, J: Job>(Queue<'a, J>);

enum Queue<'a, J: Job> {
    Workers {
        jobs: Sender<J>,
        failure: &'a OnceLock<anyhow::Error>,
    },
    /// Without workers: a job is done when it is submitted.
    Here(RefCell<(J::State, AlignedBuf)>),
}

impl<J: Job> Submit<'_, J> {
    /// Submits a job; blocks while 128 jobs wait. Fails once any job has failed.
    pub fn submit(&self, job: J) -> Result<()> {
        let (jobs, failure) = match &self.0 {
            Queue::Workers { jobs, failure } => (jobs, failure),
            Queue::Here(own) => {
                let (state, buffer) = &mut *own.borrow_mut();
                return match job.start(state)? {
                    Some(copy) => Chunks::new(copy).copy(buffer, || false),
                    None => Ok(()),
                };
            }
        };
        if failure.get().is_some() || jobs.send(job).is_err() {
            // Only the failure itself is reported.
            bail!("stopped");
        }
        Ok(())
    }
}

/// Runs `produce`, and each job that it submits before `submit` returns. So the jobs have the same effects in the same order each time.
pub fn run_in_order<J: Job>(
    state: impl FnOnce() -> J::State,
    produce: impl FnOnce(&Submit<'_, J>) -> Result<()>,
) -> Result<()> {
    let own = Submit(Queue::Here(RefCell::new((state(), AlignedBuf::zeroed(CHUNK)))));
    produce(&own)?;
    match own.0 {
        Queue::Here(own) => own.into_inner().0.finish(),
        Queue::Workers { .. } => Ok(()),
    }
}

/// Runs `produce`, and the jobs that it submits on `threads` threads, each with a `state` of its own. Returns when all are
/// done, or with the first failure.
pub fn run<J: Job>(
    threads: usize,
    state: impl Fn() -> J::State + Sync,
    produce: impl FnOnce(&Submit<'_, J>) -> Result<()>,
) -> Result<()> {
    let threads = threads.max(1);
    let failure = OnceLock::new();
    let (jobs, job_queue) = crossbeam_channel::bounded(WAITING);
    let (ask, help_queue) = crossbeam_channel::unbounded();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let worker = Worker {
                jobs: job_queue.clone(),
                help: help_queue.clone(),
                ask: ask.clone(),
                others: threads - 1,
                failure: &failure,
                buffer: AlignedBuf::zeroed(CHUNK),
            };
            let state = &state;
            scope.spawn(move || worker.run(state()));
        }
        // Only the workers keep the queues open.
        drop((job_queue, help_queue, ask));
        if let Err(error) = produce(&Submit(Queue::Workers { jobs, failure: &failure })) {
            let _ = failure.set(error);
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

struct Worker<'a, J: Job> {
    jobs: Receiver<J>,
    /// Large files that other workers have started.
    help: Receiver<Arc<Chunks<J::Copy>>>,
    ask: Sender<Arc<Chunks<J::Copy>>>,
    others: usize,
    failure: &'a OnceLock<anyhow::Error>,
    buffer: AlignedBuf,
}

impl<J: Job> Worker<'_, J> {
    fn run(mut self, mut state: J::State) {
        loop {
            select_biased! {
                recv(self.help) -> file => if let Ok(file) = file { self.copy(&file) },
                recv(self.jobs) -> job => match job {
                    Ok(job) => self.start(job, &mut state),
                    Err(_) => break,
                },
            }
        }
        if self.failure.get().is_none()
            && let Err(error) = state.finish()
        {
            self.fail(error);
        }
        // No more files will be started here; go on helping until that is so everywhere.
        drop(std::mem::replace(&mut self.ask, crossbeam_channel::bounded(0).0));
        while let Ok(file) = self.help.recv() {
            self.copy(&file);
        }
    }

    fn start(&mut self, job: J, state: &mut J::State) {
        if self.failure.get().is_some() {
            return;
        }
        match job.start(state) {
            Ok(None) => {}
            Ok(Some(copy)) => {
                let file = Arc::new(Chunks::new(copy));
                for _ in 0..file.helpers().min(self.others) {
                    // It cannot fail: this worker holds a receiver.
                    let _ = self.ask.send(Arc::clone(&file));
                }
                self.copy(&file);
            }
            Err(error) => self.fail(error),
        }
    }

    fn copy(&mut self, file: &Chunks<J::Copy>) {
        let stopped = || self.failure.get().is_some();
        if let Err(error) = file.copy(&mut self.buffer, stopped) {
            self.fail(error);
        }
    }

    fn fail(&self, error: anyhow::Error) {
        // Later failures may be consequences of the first.
        let _ = self.failure.set(error);
    }
}

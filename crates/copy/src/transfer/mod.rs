//! Copies many files, and the chunks of large ones, by several threads.
//!
//! One thread walks the tree and submits [`Job`]s; workers start them. A worker that starts a large
//! file asks the other workers for help; they copy chunks of it before they start files of their
//! own. So neither a million small files nor a single large one leaves a thread idle.
//!
//! A job that fails is reported and left out, unless the error ends the copy ([`Report`]).

mod chunks;

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crossbeam_channel::{Receiver, Sender, select_biased};
use parext4::device::AlignedBuf;

use chunks::Chunks;
pub use chunks::{CHUNK, Copy, GRAIN};

use crate::report::Report;

/// The largest number of runs of data in a sparse file of an archive.
pub const MOST_RUNS: usize = 1 << 20;

/// The largest number of jobs that wait. With many fewer, the thread that walks the tree and the
/// workers wake each other for each small file. With many more, the directories that jobs keep open
/// may exceed the limit of open files, of 1024 by default.
const WAITING: usize = 128;

/// A file to copy.
pub trait Job: Send {
    /// The file once it is open.
    type Copy: Copy;
    /// State that a thread keeps from one job to the next.
    type State: WorkerState;

    /// Opens source and destination. Returns `None` if the file is copied, or if `state` copies it.
    fn start(self, state: &mut Self::State) -> Result<Option<Self::Copy>>;
}

/// State that a thread keeps from one job to the next.
pub trait WorkerState {
    /// Completes the files that are left, after the thread's last job. Fails only with an error
    /// that ends the copy.
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
        failure: &'a OnceLock<Error>,
    },
    /// Without workers: a job is done when it is submitted.
    Here {
        own: RefCell<(J::State, AlignedBuf)>,
        report: &'a Report<'a>,
    },
}

impl<J: Job> Submit<'_, J> {
    /// Submits a job; blocks while 128 jobs wait. Fails once an error has ended the copy.
    pub fn submit(&self, job: J) -> Result<()> {
        let (jobs, failure) = match &self.0 {
            Queue::Workers { jobs, failure } => (jobs, failure),
            Queue::Here { own, report } => {
                let (state, buffer) = &mut *own.borrow_mut();
                let copied = job.start(state).and_then(|started| match started {
                    Some(copy) => Chunks::new(copy).copy(buffer, || false),
                    None => Ok(()),
                });
                return report.skip(copied).map(|_| ());
            }
        };
        if failure.get().is_some() || jobs.send(job).is_err() {
            return Err(Error::Stopped);
        }
        Ok(())
    }
}

/// Runs `produce`, and each job that it submits before `submit` returns. So the jobs have the same
/// effects in the same order each time.
pub fn run_in_order<J: Job>(
    report: &Report<'_>,
    state: impl FnOnce() -> J::State,
    produce: impl FnOnce(&Submit<'_, J>) -> Result<()>,
) -> Result<()> {
    let own = RefCell::new((state(), AlignedBuf::zeroed(CHUNK)));
    let submit = Submit(Queue::Here { own, report });
    let produced = produce(&submit);
    let finished = match submit.0 {
        Queue::Here { own, .. } => own.into_inner().0.finish(),
        Queue::Workers { .. } => Ok(()),
    };
    produced.and(finished)
}

/// Runs `produce`, and the jobs that it submits on `threads` threads, each with a `state` of its
/// own. Returns when all are done, or with the first error that ended the copy; then the files that
/// a `state` copies are complete, unless they failed.
pub fn run<J: Job>(
    threads: usize,
    report: &Report<'_>,
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
                report,
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
    failure: &'a OnceLock<Error>,
    report: &'a Report<'a>,
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
        self.settle(state.finish());
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
            Err(error) => self.settle(Err(error)),
        }
    }

    fn copy(&mut self, file: &Chunks<J::Copy>) {
        let stopped = || self.failure.get().is_some();
        let copied = file.copy(&mut self.buffer, stopped);
        self.settle(copied);
    }

    /// Reports an error, and stops all threads if it ends the copy.
    fn settle(&self, result: Result<()>) {
        if let Err(error) = self.report.skip(result) {
            // The copy returns the first. A later one is of another file, which it may have left
            // incomplete.
            if let Err(later) = self.failure.set(error)
                && !later.is_last()
            {
                self.report.error(later);
            }
        }
    }
}

//! The threads that read ahead. Writing back, which may take long, has others.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError, Weak};

use super::threads::{Threads, lock};
use crate::inode::Inode;
use crate::sync::Arc;

const THREADS: usize = 4;
/// Pages that one thread brings in at once: 1 MiB.
const PIECE: u32 = 256;
/// Pieces that wait; more are dropped.
const MOST_WAITING: usize = 256;

/// The threads, from the first pages on that are to be read ahead.
#[derive(Debug, Default)]
pub(crate) struct ReadAheadThreads {
    queue: Arc<ReadAheadQueue>,
    threads: Threads,
}

/// The pages that wait to be brought in.
#[derive(Debug, Default)]
pub(crate) struct ReadAheadQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    started: bool,
    stopped: bool,
    waiting: VecDeque<(Arc<Inode>, Range<u32>)>,
}

impl ReadAheadThreads {
    /// Has the threads, each of which calls `run`, bring pages in, as far as they are not too busy.
    pub(crate) fn read_ahead<E: Send + Sync + 'static>(
        &self,
        engine: &Arc<E>,
        inode: &Arc<Inode>,
        pages: Range<u32>,
        run: fn(&Weak<E>, &ReadAheadQueue),
    ) {
        let mut state = lock(&self.queue.state);
        if state.stopped {
            return;
        }
        for start in pages.clone().step_by(PIECE as usize) {
            if state.waiting.len() == MOST_WAITING {
                break;
            }
            let end = start.saturating_add(PIECE).min(pages.end);
            state.waiting.push_back((Arc::clone(inode), start..end));
            self.queue.changed.notify_one();
        }
        if !std::mem::replace(&mut state.started, true) {
            let (engine, queue) = (Arc::downgrade(engine), Arc::clone(&self.queue));
            self.threads.start("parext4-ahead", THREADS, move || run(&engine, &queue));
        }
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop(&self) {
        lock(&self.queue.state).stopped = true;
        self.queue.changed.notify_all();
        self.threads.join();
        lock(&self.queue.state).waiting.clear();
    }
}

impl ReadAheadQueue {
    /// Waits for pages to bring in; `None` if the threads must end.
    pub(crate) fn next(&self) -> Option<(Arc<Inode>, Range<u32>)> {
        let idle = |state: &mut State| !state.stopped && state.waiting.is_empty();
        let waited = self.changed.wait_while(lock(&self.state), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.stopped { None } else { state.waiting.pop_front() }
    }
}

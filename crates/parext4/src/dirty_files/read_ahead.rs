//! The threads that read ahead. Writing back, which may take long, has others.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Weak;
use std::thread::JoinHandle;

use crate::inode::Inode;
use crate::sync::{Arc, Condvar, Mutex, Rank};
use crate::threads;

const THREADS: usize = 4;
/// Pages that one thread brings in at once: 1 MiB.
const PIECE: u32 = 256;
/// Pieces that wait; more are dropped.
const MOST_WAITING: usize = 256;

/// The threads, from the first pages on that are to be read ahead.
#[derive(Debug, Default)]
pub(crate) struct ReadAheadThreads {
    queue: Arc<ReadAheadQueue>,
}

/// The pages that wait to be brought in.
#[derive(Debug)]
pub(crate) struct ReadAheadQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    started: bool,
    stopped: bool,
    waiting: VecDeque<(Arc<Inode>, Range<u32>)>,
    threads: Vec<JoinHandle<()>>,
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
        let mut state = self.queue.state.lock();
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
            let body = move || run(&engine, &queue);
            state.threads =
                (0..THREADS).filter_map(|_| threads::spawn("parext4-ahead", body.clone())).collect();
        }
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop(&self) {
        let threads = {
            let mut state = self.queue.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.threads)
        };
        self.queue.changed.notify_all();
        threads::join(threads);
        let waiting = std::mem::take(&mut self.queue.state.lock().waiting);
        drop(waiting);
    }
}

impl Default for ReadAheadQueue {
    fn default() -> Self {
        Self { state: Mutex::new(Rank::Leaf, State::default()), changed: Condvar::default() }
    }
}

impl ReadAheadQueue {
    /// Waits for pages to bring in; `None` if the threads must end.
    pub(crate) fn next(&self) -> Option<(Arc<Inode>, Range<u32>)> {
        let mut state = self.state.lock();
        while !state.stopped && state.waiting.is_empty() {
            self.changed.wait(&mut state);
        }
        if state.stopped { None } else { state.waiting.pop_front() }
    }
}

//! The threads that read ahead. Writing back, which may take long, has others.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError, Weak};

use super::Inner;
use super::background::{Threads, lock};
use crate::file::File;
use crate::inode::Inode;
use crate::sync::Arc;

const THREADS: usize = 4;
/// Pages that one thread brings in at once: 1 MiB.
const PIECE: u32 = 256;
/// Pieces that wait; more are dropped.
const MOST_WAITING: usize = 256;

/// The threads, from the first pages on that are to be read ahead.
#[derive(Debug, Default)]
pub(super) struct Readers {
    state: Arc<(Mutex<State>, Condvar)>,
    threads: Threads,
}

#[derive(Debug, Default)]
struct State {
    started: bool,
    stopped: bool,
    waiting: VecDeque<(Arc<Inode>, Range<u32>)>,
}

impl Readers {
    /// Has the threads bring pages in, as far as they are not too busy.
    pub(super) fn read_ahead(&self, volume: &Arc<Inner>, inode: &Arc<Inode>, pages: Range<u32>) {
        let mut state = lock(&self.state.0);
        if state.stopped {
            return;
        }
        for start in pages.clone().step_by(PIECE as usize) {
            if state.waiting.len() == MOST_WAITING {
                break;
            }
            let end = start.saturating_add(PIECE).min(pages.end);
            state.waiting.push_back((Arc::clone(inode), start..end));
            self.state.1.notify_one();
        }
        if !std::mem::replace(&mut state.started, true) {
            let (volume, state) = (Arc::downgrade(volume), Arc::clone(&self.state));
            self.threads.start("parext4-ahead", THREADS, move || run(&volume, &state));
        }
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop(&self) {
        lock(&self.state.0).stopped = true;
        self.state.1.notify_all();
        self.threads.join();
        lock(&self.state.0).waiting.clear();
    }
}

fn run(volume: &Weak<Inner>, shared: &(Mutex<State>, Condvar)) {
    while let Some((inode, pages)) = next(shared) {
        let Some(volume) = volume.upgrade() else { return };
        if let Some(file) = File::for_own_thread(&volume, &inode)
            && let Err(error) = file.bring_in(pages)
        {
            // Whoever needs the pages will hear of it.
            tracing::debug!("reading ahead in inode {}: {error}", inode.ino());
        }
    }
}

/// Waits for pages to bring in; `None` if it is all over.
fn next(shared: &(Mutex<State>, Condvar)) -> Option<(Arc<Inode>, Range<u32>)> {
    let idle = |state: &mut State| !state.stopped && state.waiting.is_empty();
    let waited = shared.1.wait_while(lock(&shared.0), idle);
    let mut state = waited.unwrap_or_else(PoisonError::into_inner);
    if state.stopped { None } else { state.waiting.pop_front() }
}

//! The read-ahead threads and their queue.
//!
//! This module queues pages, and starts and joins the threads. `file::buffered` passes the reading
//! as a function. The flush threads do not read ahead, because write-back may take long.

use std::collections::VecDeque;
use std::sync::Weak;

use crate::inode::Inode;
use crate::page_cache::{PageRange, PageSize};
use crate::sync::{Arc, Condvar, Mutex, Rank};
use crate::threads::{self, JoinHandle};

const THREADS: usize = 4;
/// Limit of one request, in bytes.
const REQUEST: u64 = 4 << 20;
/// Maximum length of the queue. Further requests are dropped.
const MAX_QUEUED: usize = 256;

/// The threads, which start with the first request.
#[derive(Debug, Default)]
pub(crate) struct ReadAheadThreads {
    queue: Arc<ReadAheadQueue>,
}

/// The queue of pages to read.
#[derive(Debug)]
pub(crate) struct ReadAheadQueue {
    state: Mutex<ReadAheadRequests>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ReadAheadRequests {
    started: bool,
    stopped: bool,
    requests: VecDeque<(Arc<Inode>, PageRange)>,
    threads: Vec<JoinHandle<()>>,
}

impl ReadAheadThreads {
    /// Queues `pages` of a file, in parts of at most [`REQUEST`] bytes. Drops the parts for which
    /// the queue has no room. Starts the threads if they have not been started; each of them calls
    /// `run`.
    pub(crate) fn read_ahead<E: Send + Sync + 'static>(
        &self,
        engine: &Arc<E>,
        inode: &Arc<Inode>,
        (pages, page_size): (PageRange, PageSize),
        run: fn(&Weak<E>, &ReadAheadQueue),
    ) {
        let mut state = self.queue.state.lock();
        if state.stopped {
            return;
        }
        let mut rest = pages;
        while !rest.is_empty() && state.requests.len() < MAX_QUEUED {
            let part = rest.take(page_size.pages_in(REQUEST));
            rest = PageRange::new(part.end(), pages.end());
            state.requests.push_back((Arc::clone(inode), part));
            self.queue.changed.notify_one();
        }
        if !std::mem::replace(&mut state.started, true) {
            let (engine, queue) = (Arc::downgrade(engine), Arc::clone(&self.queue));
            let block_map = move || run(&engine, &queue);
            state.threads =
                (0..THREADS).filter_map(|_| threads::spawn("parext4-ahead", block_map.clone())).collect();
        }
    }

    /// Stops the threads and joins them, and empties the queue.
    pub(super) fn stop(&self) {
        let threads = {
            let mut state = self.queue.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.threads)
        };
        self.queue.changed.notify_all();
        threads::join(threads);
        let requests = std::mem::take(&mut self.queue.state.lock().requests);
        drop(requests);
    }
}

impl Default for ReadAheadQueue {
    fn default() -> Self {
        Self { state: Mutex::new(Rank::Leaf, ReadAheadRequests::default()), changed: Condvar::default() }
    }
}

impl ReadAheadQueue {
    /// Returns the next pages to read. Blocks while the queue is empty. Returns `None` if the
    /// thread must end.
    pub(crate) fn next(&self) -> Option<(Arc<Inode>, PageRange)> {
        let mut state = self.state.lock();
        while !state.stopped && state.requests.is_empty() {
            self.changed.wait(&mut state);
        }
        if state.stopped { None } else { state.requests.pop_front() }
    }
}

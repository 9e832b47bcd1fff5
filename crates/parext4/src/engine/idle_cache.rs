//! Releasing the memory of the page cache after it was idle for a time.

use std::time::Duration;

use crate::page_cache::PageCache;
use crate::sleep_timer::SleepTimer;
use crate::sync::{Arc, Mutex, Rank};
use crate::threads::{self, JoinHandle};

/// The thread that checks the cache. It starts with the first buffered file.
#[derive(Debug)]
pub(crate) struct IdleCache {
    /// How long the cache must be idle. `None`: it keeps its memory.
    after: Option<Duration>,
    timer: Arc<SleepTimer>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl IdleCache {
    pub(crate) fn new(after: Option<Duration>) -> Self {
        Self { after, timer: Arc::default(), thread: Mutex::new(Rank::Leaf, None) }
    }

    /// Starts the thread unless it runs. It holds the page cache and not the engine.
    pub(crate) fn start(&self, pages: &Arc<PageCache>) {
        let Some(after) = self.after else { return };
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (timer, pages) = (Arc::clone(&self.timer), Arc::clone(pages));
            *thread = threads::spawn("parext4-idle", move || watch(&timer, &pages, after));
        }
    }

    /// Stops the thread and joins it.
    pub(crate) fn stop(&self) {
        self.timer.stop();
        let thread = self.thread.lock().take();
        threads::join(thread);
    }
}

/// Checks once in each `after`, so the memory is released after the cache was idle for once to
/// twice as long.
fn watch(timer: &SleepTimer, pages: &PageCache, after: Duration) {
    let mut seen = pages.uses();
    while timer.sleep(after) {
        let uses = pages.uses();
        if uses == seen {
            pages.shrink();
        }
        seen = uses;
    }
}

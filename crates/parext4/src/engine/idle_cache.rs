//! Gives the memory of the page cache back when nobody has used it for a while.

use std::thread::JoinHandle;
use std::time::Duration;

use crate::page_cache::PageCache;
use crate::sleep_timer::SleepTimer;
use crate::sync::{Arc, Mutex, Rank};
use crate::threads;

/// The thread that looks, from the first buffered file on.
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

    /// Starts the thread if it does not run. It holds the cache, not the volume.
    pub(crate) fn start(&self, pages: &Arc<PageCache>) {
        let Some(after) = self.after else { return };
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (timer, pages) = (Arc::clone(&self.timer), Arc::clone(pages));
            *thread = threads::spawn("parext4-idle", move || watch(&timer, &pages, after));
        }
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        self.timer.stop();
        let thread = self.thread.lock().take();
        threads::join(thread);
    }
}

/// Looks once in each `after`, so the cache has been idle for once to twice as long.
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

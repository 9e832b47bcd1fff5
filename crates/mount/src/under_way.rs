//! Requests under way: what each waits for, and a watchdog that logs those which take more than a minute.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::INodeNo;
use parking_lot::Mutex;
use slab::Slab;

/// Age from which a request is logged.
const LONG: Duration = Duration::from_secs(60);
/// How often the watchdog checks.
const INTERVAL: Duration = Duration::from_secs(10);
/// Number of lists, each with a lock of its own, so that threads rarely contend.
const SHARDS: usize = 16;

/// What a request asks for, and of which inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What {
    name: &'static str,
    ino: u64,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A thread carries it out.
    Runs,
    /// All workers are busy.
    WaitsForWorker,
    /// A lane carries it out.
    InLane,
    /// Pages of the kernel.
    WaitsForKernel,
}

#[derive(Debug)]
struct Entry {
    what: What,
    since: Instant,
    stage: Stage,
    logged: bool,
}

/// All requests under way.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    shards: [Mutex<Slab<Entry>>; SHARDS],
    next: AtomicUsize,
}

/// A request, which is under way until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ticket {
    all: Arc<UnderWay>,
    shard: usize,
    key: usize,
}

/// The thread that logs requests that take long. Dropping this stops it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl What {
    pub fn new(name: &'static str, ino: INodeNo) -> Self {
        Self { name, ino: ino.0 }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Runs => "the device, memory, or other operations on the file",
            Self::WaitsForWorker => "a free worker",
            Self::InLane => "the device or other operations on the range, in a lane",
            Self::WaitsForKernel => "the kernel to write back or release pages",
        })
    }
}

impl UnderWay {
    /// Notes that a request is under way.
    pub fn begin(self: &Arc<Self>, what: What) -> Ticket {
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let entry = Entry { what, since: Instant::now(), stage: Stage::Runs, logged: false };
        Ticket { all: Arc::clone(self), shard, key: self.shards[shard].lock().insert(entry) }
    }

    /// Describes the requests that have been under way for more than a minute at `now`. With `once`, leaves out those
    /// that an earlier call with `once` has returned.
    pub fn long(&self, now: Instant, once: bool) -> Vec<String> {
        let mut long = Vec::new();
        for shard in &self.shards {
            for (_, entry) in &mut *shard.lock() {
                let waited = now.saturating_duration_since(entry.since);
                if waited > LONG && !(once && entry.logged) {
                    entry.logged |= once;
                    let (What { name, ino }, seconds) = (entry.what, waited.as_secs());
                    long.push(format!("{name} of inode {ino} for {seconds} s: it waits for {}", entry.stage));
                }
            }
        }
        long
    }
}

impl Ticket {
    /// Notes what the request waits for from now on.
    pub fn enter(&self, stage: Stage) {
        if let Some(entry) = self.all.shards[self.shard].lock().get_mut(self.key) {
            entry.stage = stage;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.all.shards[self.shard].lock().remove(self.key);
    }
}

impl Watchdog {
    /// Starts the thread.
    pub fn start(all: Arc<UnderWay>) -> std::io::Result<Self> {
        let (end, ended) = channel::<()>();
        let watch = move || {
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for request in all.long(Instant::now(), true) {
                    tracing::warn!("a request takes long: {request}");
                }
            }
        };
        let thread = std::thread::Builder::new().name("parext4-watchdog".into()).spawn(watch)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the watchdog panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_take_long_are_told_with_what_they_wait_for() {
        let all = Arc::new(UnderWay::default());
        let mut tickets: Vec<_> = (0..40).map(|ino| all.begin(What::new("lseek", INodeNo(ino)))).collect();
        tickets[7].enter(Stage::WaitsForKernel);
        let later = Instant::now() + LONG + Duration::from_secs(1);
        assert_eq!(all.long(later, false).len(), 40);
        assert!(all.long(later - LONG, false).is_empty());
        let left = tickets.swap_remove(7);
        drop(tickets);
        for once in [false, true] {
            let said = all.long(later, once);
            assert!(said.len() == 1 && said[0].starts_with("lseek of inode 7 for 6"), "{said:?}");
            assert!(said[0].ends_with("it waits for the kernel to write back or release pages"), "{said:?}");
        }
        assert!(all.long(later, true).is_empty(), "logged once");
        drop(left);
        assert!(all.long(later, false).is_empty());
    }
}

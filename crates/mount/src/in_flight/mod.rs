//! Lists the requests in flight and what each waits for, and logs requests that take more than a
//! minute. Pauses requests while the volume is opened again.

mod pause;
mod watchdog;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::INodeNo;
use parext4_sync::atomic::{AtomicUsize, Ordering};
use parext4_sync::{Condvar, Mutex};
use slab::Slab;

pub(crate) use watchdog::Watchdog;

/// Age from which a request counts as slow.
const SLOW: Duration = Duration::from_mins(1);
/// Number of lists, each with its own lock, so that threads rarely contend.
const SHARDS: usize = 16;

/// The kind of a request, and its inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestInfo {
    name: &'static str,
    ino: u64,
}

/// The stage of a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A thread executes the request.
    Executing,
    /// The request waits for a worker, because all are busy.
    QueuedForWorker,
    /// The request waits for memory, because queued requests use up the memory for their data.
    WaitingForMemory,
    /// A queue thread has submitted the request, or will.
    InQueueThread,
    /// The request waits for the kernel to write back or drop pages.
    WaitingForKernel,
}

#[derive(Debug)]
struct Entry {
    info: RequestInfo,
    since: Instant,
    stage: Stage,
    logged: bool,
}

/// A part of the requests in flight.
#[derive(Debug, Default)]
struct Shard {
    list: Mutex<List>,
    /// Signalled when requests may start again.
    resumed: Condvar,
}

#[derive(Debug, Default)]
struct List {
    entries: Slab<Entry>,
    /// True while no request may start.
    is_paused: bool,
}

/// All requests in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlightRequests {
    shards: [Shard; SHARDS],
    next_shard: AtomicUsize,
}

/// A listed request. Dropping it removes the request from the list.
#[derive(Debug)]
#[must_use]
pub(crate) struct InFlightRequest {
    requests: Arc<InFlightRequests>,
    shard: usize,
    key: usize,
}

impl RequestInfo {
    pub fn new(name: &'static str, ino: INodeNo) -> Self {
        Self { name, ino: ino.0 }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Executing => "the device, memory, or another operation on the file",
            Self::QueuedForWorker => "a free worker thread",
            Self::WaitingForMemory => "memory, which queued requests use up",
            Self::InQueueThread => "the device or another operation on the range, in a queue thread",
            Self::WaitingForKernel => "the kernel to write back or drop pages",
        })
    }
}

impl InFlightRequests {
    /// Lists a request until the result is dropped. Blocks while requests are
    /// [paused](Self::pause). A request may use the volume and open files only after this call.
    pub fn add(self: &Arc<Self>, info: RequestInfo) -> InFlightRequest {
        let number = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let shard = &self.shards[number];
        let mut list = shard.list.lock();
        while list.is_paused {
            shard.resumed.wait(&mut list);
        }
        let entry = Entry { info, since: Instant::now(), stage: Stage::Executing, logged: false };
        let key = list.entries.insert(entry);
        InFlightRequest { requests: Arc::clone(self), shard: number, key }
    }

    /// Describes the requests that have been in flight for more than a minute at `now`.
    pub fn slow(&self, now: Instant) -> Vec<String> {
        self.describe_slow(now, |_| true)
    }

    /// Like [`slow`](Self::slow), but returns each request only once.
    fn slow_and_unlogged(&self, now: Instant) -> Vec<String> {
        self.describe_slow(now, |entry| !std::mem::replace(&mut entry.logged, true))
    }

    fn describe_slow(&self, now: Instant, filter: impl Fn(&mut Entry) -> bool) -> Vec<String> {
        let mut slow = Vec::new();
        for shard in &self.shards {
            for (_, entry) in &mut shard.list.lock().entries {
                let age = now.saturating_duration_since(entry.since);
                if age > SLOW && filter(entry) {
                    let (RequestInfo { name, ino }, seconds) = (entry.info, age.as_secs());
                    slow.push(format!("{name} of inode {ino} for {seconds} s: it waits for {}", entry.stage));
                }
            }
        }
        slow
    }
}

impl InFlightRequest {
    /// Records the stage that the request enters.
    pub fn enter(&self, stage: Stage) {
        if let Some(entry) = self.requests.shards[self.shard].list.lock().entries.get_mut(self.key) {
            entry.stage = stage;
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.requests.shards[self.shard].list.lock().entries.remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_are_described_with_what_they_wait_for() {
        let list = Arc::new(InFlightRequests::default());
        let mut requests: Vec<_> =
            (0..40).map(|ino| list.add(RequestInfo::new("lseek", INodeNo(ino)))).collect();
        requests[7].enter(Stage::WaitingForKernel);
        let later = Instant::now() + SLOW + Duration::from_secs(1);
        assert_eq!(list.slow(later).len(), 40);
        assert!(list.slow(later - SLOW).is_empty());
        let left = requests.swap_remove(7);
        drop(requests);
        for described in [list.slow(later), list.slow_and_unlogged(later)] {
            assert!(described.len() == 1, "{described:?}");
            assert!(described[0].starts_with("lseek of inode 7 for 6"), "{described:?}");
            assert!(
                described[0].ends_with("it waits for the kernel to write back or drop pages"),
                "{described:?}"
            );
        }
        assert!(list.slow_and_unlogged(later).is_empty(), "logged once");
        drop(left);
        assert!(list.slow(later).is_empty());
    }
}

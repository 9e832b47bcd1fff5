//! Pauses requests: the volume of a mount is replaced while no request uses it.

use std::time::{Duration, Instant};

use super::InFlightRequests;

/// Longest wait for the requests in flight.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two counts of the requests in flight.
const INTERVAL: Duration = Duration::from_millis(1);

/// Keeps requests from starting until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Pause<'a>(&'a InFlightRequests);

impl InFlightRequests {
    /// Keeps further requests from starting, and blocks until the caller's own request is the only
    /// one in flight. Returns `None` and lets requests start again if another request has paused
    /// them, or if they take more than 30 seconds: one of them may wait for a request that has not
    /// started.
    pub fn pause(&self) -> Option<Pause<'_>> {
        {
            let mut first = self.shards[0].list.lock();
            if std::mem::replace(&mut first.is_paused, true) {
                return None;
            }
        }
        let pause = Pause(self);
        for shard in &self.shards[1..] {
            shard.list.lock().is_paused = true;
        }
        let deadline = Instant::now() + PATIENCE;
        while self.count() > 1 {
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(INTERVAL);
        }
        Some(pause)
    }

    fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.list.lock().entries.len()).sum()
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        // The first shard is resumed last, because it admits the next pause.
        for shard in self.0.shards.iter().rev() {
            shard.list.lock().is_paused = false;
            shard.resumed.notify_all();
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{TryRecvError, channel};

    use fuser::INodeNo;

    use super::*;
    use crate::in_flight::RequestInfo;

    #[test]
    fn requests_start_after_the_pause_and_the_pause_after_earlier_requests() {
        let requests = Arc::<InFlightRequests>::default();
        let add = || requests.add(RequestInfo::new("lookup", INodeNo(1)));
        let (own, earlier) = (add(), add());
        std::thread::scope(|scope| {
            let (paused, is_paused) = channel();
            let (go_on, goes_on) = channel::<()>();
            let requests = &requests;
            scope.spawn(move || {
                let pause = requests.pause().unwrap();
                paused.send(()).unwrap();
                goes_on.recv().unwrap();
                drop(pause);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(is_paused.try_recv(), Err(TryRecvError::Empty), "a request is in flight");
            assert!(requests.pause().is_none(), "one pause at a time");
            drop(earlier);
            is_paused.recv().unwrap();
            let (started, has_started) = channel();
            for _ in 0..40 {
                let started = started.clone();
                scope.spawn(move || {
                    let request = requests.add(RequestInfo::new("lookup", INodeNo(1)));
                    started.send(()).unwrap();
                    drop(request);
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(has_started.try_recv(), Err(TryRecvError::Empty));
            go_on.send(()).unwrap();
            (0..40).for_each(|_| has_started.recv().unwrap());
        });
        drop(own);
        let _own = add();
        assert!(requests.pause().is_some(), "requests can be paused again");
    }
}

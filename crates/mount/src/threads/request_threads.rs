//! Decides which threads read requests from the kernel, and which of them may execute the request
//! that they have read.
//!
//! Invariant: at any time at least one thread reads requests, or the monitor watches the only
//! thread that executes one, or the threads wait for memory, which requests in progress free
//! without them ([`MemoryBudget`](super::MemoryBudget)). So the server reads the kernel's requests,
//! however many requests wait for the device, until these use up that memory.
//!
//! A request thread is in one of three states:
//!
//! | state | counted in | left when |
//! |---|---|---|
//! | reads requests (blocks on `/dev/fuse`, or polls it) | `readers` | it executes a request, or parks |
//! | executes the request that it has read | neither | the request is done |
//! | parked | `parked` | another thread wakes it, or no thread reads requests any more |
//!
//! 1. The thread that has read a request executes it, so most requests stay in one thread. It may
//!    do so only if another thread still reads requests; otherwise it wakes a parked thread first,
//!    or passes the request to another thread.
//! 2. While requests are short and follow each other closely ([`PollPolicy`]), waking a thread
//!    costs more than a request. Then one thread for four processors reads requests and the other
//!    threads park. A reader polls for the next request for [`POLL_TIME`] before it blocks, and
//!    executes a short request even if no other thread reads requests.
//! 3. One of the parked threads is the monitor. It wakes up each [`MONITOR_INTERVAL`], and reads
//!    requests itself if no thread does.
//! 4. While a request is usually pending when another ends, as under the load of many programs, all
//!    threads read requests.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parext4_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use parext4_sync::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::poll_policy::PollPolicy;

/// Interval at which the monitor checks that a thread reads requests. It bounds the wait of a
/// request while all readers execute long requests that were expected to be short.
const MONITOR_INTERVAL: Duration = Duration::from_millis(1);
/// Interval at which the other parked threads check. No thread is notified when the kernel ends the
/// connection.
const PARK_TIMEOUT: Duration = Duration::from_millis(20);
/// Time for which a reader polls for the next request. To poll costs less than to block and be
/// woken.
const POLL_TIME: Duration = Duration::from_micros(50);

/// The threads that read requests from the kernel.
#[derive(Debug)]
pub(crate) struct RequestThreads {
    /// Threads that read requests, or were woken to do so.
    readers: AtomicUsize,
    threads: usize,
    /// Number of readers below which no thread parks.
    min_readers: usize,
    /// Time after which a parked thread reads requests again although no other thread has woken it.
    park_timeout: Duration,
    /// Requests read so far.
    received: AtomicU64,
    poll_policy: PollPolicy,
    parked: Mutex<Parked>,
    wake: Condvar,
    /// The file that requests are read from.
    device: OnceLock<OwnedFd>,
}

#[derive(Debug, Default)]
struct Parked {
    /// Threads that are parked and not woken.
    threads: usize,
    /// Threads that were woken and do not run yet. They count as readers.
    woken: usize,
    /// True if one of the parked threads is the monitor.
    has_monitor: bool,
}

/// A request, from the time a thread has read it until the same thread reads the next one.
#[derive(Debug)]
#[must_use]
pub(crate) struct RequestScope<'a> {
    threads: &'a RequestThreads,
    received: Instant,
    handed_off: bool,
}

/// The expected duration of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Latency {
    /// The request usually takes no longer than waking a thread.
    Short,
    /// The request waits for the device.
    Long,
}

/// Permission to execute a request in the thread that has read it. It is dropped when the request
/// is done.
#[derive(Debug)]
#[must_use]
pub(crate) struct Executing<'a>(&'a RequestThreads);

impl RequestThreads {
    /// Returns the state of `threads` threads, all of which read requests.
    pub fn new(threads: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            readers: AtomicUsize::new(threads),
            threads,
            // The programs that send the requests need the other processors.
            min_readers: processors.div_ceil(4),
            park_timeout: PARK_TIMEOUT,
            received: AtomicU64::new(0),
            poll_policy: PollPolicy::new(),
            parked: Mutex::default(),
            wake: Condvar::new(),
            device: OnceLock::new(),
        }
    }

    /// Sets the file that requests are read from. Until then no thread polls.
    pub fn set_device(&self, device: OwnedFd) {
        // This fails only if the file is set already; the session calls this once.
        let _ = self.device.set(device);
    }

    /// Counts a request that the calling thread has read.
    pub fn begin_request(&self) -> RequestScope<'_> {
        self.received.fetch_add(1, Ordering::Relaxed);
        RequestScope { threads: self, received: Instant::now(), handed_off: false }
    }

    /// Permits the calling thread, which has read a request, to execute it. Returns `None` if no
    /// thread would be left to read requests.
    pub fn try_execute(&self, latency: Latency) -> Option<Executing<'_>> {
        let may_execute = self.stop_reading(1)
            || latency == Latency::Short && self.stop_reading_monitored()
            || self.wake_replacement();
        // It is created only if permitted, because dropping it adds a reader.
        may_execute.then(|| Executing(self))
    }

    /// Removes the calling thread from the readers. Returns false if fewer than `min_left` would be
    /// left.
    fn stop_reading(&self, min_left: usize) -> bool {
        // Relaxed, because the count publishes no other data.
        let less = |readers: usize| readers.checked_sub(1).filter(|&left| left >= min_left);
        self.readers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Removes the calling thread from the readers if the monitor watches it. Returns false if
    /// there is no monitor, or requests do not follow each other closely.
    fn stop_reading_monitored(&self) -> bool {
        if !self.poll_policy.should_poll() {
            return false;
        }
        // The monitor cannot stop being parked while this thread holds the lock.
        let parked = self.parked.lock();
        parked.has_monitor && self.stop_reading(0)
    }

    /// Wakes a parked thread to read requests in place of the calling thread. Returns false if no
    /// thread is parked.
    fn wake_replacement(&self) -> bool {
        self.parked.lock().wake_one(&self.wake)
    }

    /// Adds one more reader, if a thread is parked.
    pub fn wake_reader(&self) {
        let mut parked = self.parked.lock();
        if parked.wake_one(&self.wake) {
            self.readers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Parks or polls, as the load suggests, before the calling thread reads the next request.
    fn before_next_request(&self, handed_off: bool) {
        if !self.poll_policy.should_poll() {
            return;
        }
        // The thread that executes the request needs the processor more than a thread that polls.
        if handed_off {
            self.park();
            return;
        }
        let is_pending = self.is_request_pending();
        self.poll_policy.record_pending(is_pending);
        if self.poll_policy.is_saturated() {
            self.wake_reader();
        } else if !self.park() && !is_pending && !self.poll_for_request() {
            self.poll_policy.record_timeout();
        }
    }

    /// Returns true if a request can be read now. Also returns true if polling fails, as after the
    /// end of the connection: the read that follows reports why.
    fn is_request_pending(&self) -> bool {
        let poll_one = |device| poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&Timespec::default()));
        self.device.get().is_some_and(|device| poll_one(device) != Ok(0))
    }

    /// Polls for the next request for up to [`POLL_TIME`]. Returns false if none has come.
    fn poll_for_request(&self) -> bool {
        let until = Instant::now() + POLL_TIME;
        while self.device.get().is_some() && Instant::now() < until {
            if self.is_request_pending() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Parks the calling thread until it is woken or no thread reads requests any more. Returns
    /// false, without blocking, if fewer than `min_readers` would be left.
    fn park(&self) -> bool {
        let mut parked = self.parked.lock();
        if !self.stop_reading(self.min_readers) {
            return false;
        }
        parked.threads += 1;
        let mut is_monitor = false;
        let mut last_seen = (self.received(), Instant::now());
        while parked.woken == 0 {
            is_monitor |= !std::mem::replace(&mut parked.has_monitor, true);
            let interval = if is_monitor { MONITOR_INTERVAL } else { self.park_timeout };
            if !self.wake.wait_for(&mut parked, interval).timed_out() {
                continue;
            }
            if self.received() != last_seen.0 {
                last_seen = (self.received(), Instant::now());
            } else if self.readers.load(Ordering::Relaxed) == 0 || last_seen.1.elapsed() >= self.park_timeout
            {
                break;
            }
        }
        self.unpark(parked, is_monitor);
        true
    }

    /// Makes the calling thread, which was parked, a reader again.
    fn unpark(&self, mut parked: MutexGuard<'_, Parked>, is_monitor: bool) {
        match parked.woken.checked_sub(1) {
            Some(woken) => parked.woken = woken,
            None => {
                parked.threads -= 1;
                self.readers.fetch_add(1, Ordering::Relaxed);
            }
        }
        if is_monitor {
            parked.has_monitor = false;
            // The thread that this wakes becomes the monitor.
            self.wake.notify_one();
        }
    }

    /// Returns the number of requests read so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the number of threads that execute a request.
    pub fn executing(&self) -> usize {
        let parked = self.parked.lock().threads;
        self.threads.saturating_sub(self.readers.load(Ordering::Relaxed) + parked)
    }
}

impl Parked {
    /// Wakes one thread. Returns false if none is parked.
    fn wake_one(&mut self, wake: &Condvar) -> bool {
        let Some(left) = self.threads.checked_sub(1) else { return false };
        (self.threads, self.woken) = (left, self.woken + 1);
        wake.notify_one();
        true
    }
}

impl RequestScope<'_> {
    /// Records that another thread executes the request. The calling thread must keep the scope
    /// until the request is queued for that thread: it may park when the scope is dropped.
    #[must_use = "the thread may park before the request is queued"]
    pub fn hand_off(mut self) -> Self {
        self.handed_off = true;
        self
    }
}

impl Drop for RequestScope<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.threads.poll_policy.record_request(self.received, Instant::now());
            self.threads.before_next_request(self.handed_off);
        }
    }
}

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        self.0.readers.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl RequestThreads {
    /// Returns the state of `threads` threads. A parked thread stays parked for an hour unless
    /// another thread wakes it, so a test that is preempted still finds it parked.
    pub fn parking_for_long(threads: usize) -> Self {
        Self { park_timeout: Duration::from_hours(1), ..Self::new(threads) }
    }

    /// Records 100 short requests without gaps. The policy is then to poll, also after up to five
    /// late requests.
    pub fn make_busy(&self) {
        for _ in 0..100 {
            let now = Instant::now();
            self.poll_policy.record_request(now, now);
        }
    }

    /// Returns true if a thread is parked.
    pub fn has_parked(&self) -> bool {
        self.parked.lock().threads > 0
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, unbounded};

    use super::*;

    fn readers(threads: &RequestThreads) -> usize {
        threads.readers.load(Ordering::Relaxed)
    }

    /// Returns the state of two threads, of which one parks, on a machine with any number of
    /// processors.
    fn two_threads() -> RequestThreads {
        RequestThreads { min_readers: 1, ..RequestThreads::parking_for_long(2) }
    }

    #[test]
    fn one_reader_is_always_left() {
        let threads = RequestThreads::new(3);
        let _request = threads.begin_request();
        let (first, second) = (threads.try_execute(Latency::Short), threads.try_execute(Latency::Long));
        assert!(first.is_some() && second.is_some() && threads.try_execute(Latency::Short).is_none());
        assert_eq!((threads.received(), threads.executing()), (1, 2));
        drop(first);
        assert!(threads.try_execute(Latency::Short).is_some());
        assert!(RequestThreads::new(1).try_execute(Latency::Short).is_none());
    }

    #[test]
    fn a_parked_thread_is_woken_before_no_reader_is_left() {
        let threads = two_threads();
        std::thread::scope(|scope| {
            let parked = scope.spawn(|| threads.park());
            while readers(&threads) == 2 {
                std::thread::yield_now();
            }
            // The last reader does not park, but may execute: it wakes the parked thread to read in
            // its place.
            assert!(!threads.park());
            assert!(threads.try_execute(Latency::Long).is_some());
            assert!(parked.join().unwrap());
        });
        assert_eq!((readers(&threads), threads.executing()), (2, 0));
    }

    #[test]
    fn a_parked_thread_is_woken_to_read_too() {
        let threads = two_threads();
        threads.wake_reader();
        std::thread::scope(|scope| {
            let parked = scope.spawn(|| threads.park());
            while readers(&threads) == 2 {
                std::thread::yield_now();
            }
            threads.wake_reader();
            assert!(parked.join().unwrap());
        });
        assert_eq!((readers(&threads), threads.executing()), (2, 0));
    }

    #[test]
    fn the_monitor_replaces_a_lone_thread_that_executes_for_long() {
        let threads = two_threads();
        std::thread::scope(|scope| {
            let monitor = scope.spawn(|| threads.park());
            while !threads.parked.lock().has_monitor {
                std::thread::yield_now();
            }
            threads.make_busy();
            let executing = threads.try_execute(Latency::Short).expect("the monitor watches");
            while readers(&threads) == 0 {
                std::thread::yield_now();
            }
            drop(executing);
            assert!(monitor.join().unwrap());
        });
        assert_eq!((readers(&threads), threads.executing()), (2, 0));
    }

    /// Answers requests until all senders are dropped; one in 512 takes long.
    fn serve(threads: &RequestThreads, requests: &Receiver<(u32, Sender<u32>)>) {
        for (number, reply) in requests {
            let _request = threads.begin_request();
            threads.make_busy();
            // Without the permission this thread stands for the worker that would execute the
            // request.
            let latency = if number % 64 == 1 { Latency::Long } else { Latency::Short };
            let _executing = threads.try_execute(latency);
            if number % 512 == 0 {
                std::thread::sleep(Duration::from_millis(3));
            }
            reply.send(number).expect("the sender waits for its reply");
        }
    }

    #[test]
    fn all_requests_are_answered_and_all_threads_read_in_the_end() {
        const THREADS: usize = 4;
        let threads = RequestThreads::new(THREADS);
        let (ask, requests) = unbounded();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let requests = requests.clone();
                scope.spawn(|| serve(&threads, &{ requests }));
            }
            for _ in 0..3 {
                let ask = ask.clone();
                scope.spawn(move || {
                    let (reply, replies) = unbounded();
                    for number in 0..20_000 {
                        ask.send((number, reply.clone())).expect("the threads serve until the end");
                        assert_eq!(replies.recv(), Ok(number));
                    }
                });
            }
            drop(ask);
        });
        let parked = threads.parked.lock();
        assert_eq!((parked.threads, parked.woken, parked.has_monitor), (0, 0, false));
        assert_eq!(readers(&threads), THREADS);
    }
}

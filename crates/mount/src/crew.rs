//! Which thread takes requests from the kernel, and which carries them out.
//!
//! The thread that took a request carries it out, so the usual one changes no thread. As that may take long, another
//! one must be there to take requests meanwhile: the server always hears the kernel, however many requests wait for the
//! device.
//!
//! Short requests that come upon each other ([`Pace`]) are another matter: to wake a thread costs more than they do, and
//! where all threads wait for requests the kernel wakes one for each. Then few take requests and the others rest; who
//! takes them looks for the next one for a moment before it sleeps, and works alone. A deputy among those that rest looks
//! from time to time whether it should take its place.
//!
//! Where requests wait already whenever one is over, as those of many programs do, all take them.
//!
//! At any time a thread takes requests, or a deputy looks after the one that works alone.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::pace::Pace;

/// How often a deputy looks: requests wait so long at most behind one that takes long.
const LOOK: Duration = Duration::from_millis(1);
/// Nobody is told when the kernel asks no more, so all that rest look by themselves.
const REST: Duration = Duration::from_millis(20);
/// How long to look for the next request, which costs less than to sleep and to be woken.
const PATIENCE: Duration = Duration::from_micros(50);

/// The threads that take requests.
#[derive(Debug)]
pub(crate) struct Crew {
    /// Those that take requests now.
    taking: AtomicUsize,
    threads: usize,
    /// As many take requests that come upon each other.
    few: usize,
    /// Requests taken so far.
    taken: AtomicU64,
    pace: Pace,
    rest: Mutex<Rest>,
    called: Condvar,
    /// Where requests come in.
    device: OnceLock<OwnedFd>,
}

#[derive(Debug, Default)]
struct Rest {
    /// Threads that rest and are not called.
    resting: usize,
    /// Those that were called and have not heard it yet. They count as taking requests.
    called: usize,
    /// One of those that rest looks from time to time whether anybody takes requests.
    has_deputy: bool,
}

/// What a thread does with a request, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn<'a> {
    crew: &'a Crew,
    taken: Instant,
    handed_on: bool,
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Mostly no longer than to wake a thread.
    Short,
    /// It waits for the device.
    Long,
}

/// Lets a thread work on a request, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Working<'a>(&'a Crew);

impl Crew {
    /// So many threads take requests.
    pub fn new(threads: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            taking: AtomicUsize::new(threads),
            threads,
            // The other processors are for those who ask.
            few: processors.div_ceil(4),
            taken: AtomicU64::new(0),
            pace: Pace::new(),
            rest: Mutex::default(),
            called: Condvar::new(),
            device: OnceLock::new(),
        }
    }

    /// Tells where requests come in. Before, nobody looks for them.
    pub fn set_device(&self, device: OwnedFd) {
        // Nobody else sets it.
        let _ = self.device.set(device);
    }

    /// Notes that a thread has taken a request.
    pub fn turn(&self) -> Turn<'_> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Turn { crew: self, taken: Instant::now(), handed_on: false }
    }

    /// Lets the calling thread, one of the crew, work on a request. `None` if no other would be left to take requests.
    pub fn work(&self, expected: Expected) -> Option<Working<'_>> {
        let left = self.leave(1) || expected == Expected::Short && self.leave_to_deputy() || self.call();
        // Not made in vain: it would count when it is dropped.
        left.then(|| Working(self))
    }

    /// Leaves the taking of requests to at least `others`. False if they are fewer.
    fn leave(&self, others: usize) -> bool {
        // Relaxed: the count publishes nothing.
        let leave = |taking: usize| taking.checked_sub(1).filter(|&left| left >= others);
        self.taking.fetch_update(Ordering::Relaxed, Ordering::Relaxed, leave).is_ok()
    }

    /// Leaves it to a deputy, who looks after the calling thread. False if there is none.
    fn leave_to_deputy(&self) -> bool {
        if !self.pace.is_brisk() {
            return false;
        }
        // The deputy cannot go as long as this is held.
        let rest = self.rest.lock();
        rest.has_deputy && self.leave(0)
    }

    /// Has a thread that rests take requests in place of the calling one. False if there is none.
    fn call(&self) -> bool {
        let mut rest = self.rest.lock();
        let Some(resting) = rest.resting.checked_sub(1) else { return false };
        (rest.resting, rest.called) = (resting, rest.called + 1);
        self.called.notify_one();
        true
    }

    /// What a thread does between two requests: the last of which it has handed on, or answered.
    fn between(&self, handed_on: bool) {
        if !self.pace.is_brisk() {
            return;
        }
        // Those to whom requests are handed on have better use for the processor than to look for more.
        if handed_on {
            self.rests();
            return;
        }
        let waits = self.is_request_waiting();
        self.pace.note_waiting(waits);
        if self.pace.is_crowded() {
            self.recall();
        } else if !self.rests() && !waits && !self.sees_request() {
            self.pace.set_back();
        }
    }

    /// Whether a request can be taken now. Also when it cannot be known, as after the end: who takes requests learns why.
    fn is_request_waiting(&self) -> bool {
        let poll_one = |device| poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&Timespec::default()));
        self.device.get().is_some_and(|device| poll_one(device) != Ok(0))
    }

    /// Waits for the next request for a moment. False if none has come.
    fn sees_request(&self) -> bool {
        let until = Instant::now() + PATIENCE;
        while self.device.get().is_some() && Instant::now() < until {
            if self.is_request_waiting() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Has one more thread take requests, if any rests.
    fn recall(&self) {
        let mut rest = self.rest.lock();
        if rest.resting > 0 {
            (rest.resting, rest.called) = (rest.resting - 1, rest.called + 1);
            self.taking.fetch_add(1, Ordering::Relaxed);
            self.called.notify_one();
        }
    }

    /// Lets the calling thread rest until it is called or nobody takes requests any more. False if too few would be
    /// left to take them.
    fn rests(&self) -> bool {
        let mut rest = self.rest.lock();
        if !self.leave(self.few) {
            return false;
        }
        rest.resting += 1;
        let mut is_deputy = false;
        let mut seen = (self.taken(), Instant::now());
        while rest.called == 0 {
            is_deputy |= !std::mem::replace(&mut rest.has_deputy, true);
            let interval = if is_deputy { LOOK } else { REST };
            if !self.called.wait_for(&mut rest, interval).timed_out() {
                continue;
            }
            if self.taken() != seen.0 {
                seen = (self.taken(), Instant::now());
            } else if self.taking.load(Ordering::Relaxed) == 0 || seen.1.elapsed() >= REST {
                break;
            }
        }
        self.wakes(rest, is_deputy);
        true
    }

    /// The calling thread, which has rested, takes requests again.
    fn wakes(&self, mut rest: MutexGuard<'_, Rest>, is_deputy: bool) {
        match rest.called.checked_sub(1) {
            Some(called) => rest.called = called,
            None => {
                rest.resting -= 1;
                self.taking.fetch_add(1, Ordering::Relaxed);
            }
        }
        if is_deputy {
            rest.has_deputy = false;
            // Who hears it is the next one.
            self.called.notify_one();
        }
    }

    /// Requests that were taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Threads that work on a request.
    pub fn working(&self) -> usize {
        let resting = self.rest.lock().resting;
        self.threads.saturating_sub(self.taking.load(Ordering::Relaxed) + resting)
    }
}

impl Turn<'_> {
    /// Notes that another thread carries the request out.
    pub fn hand_on(&mut self) {
        self.handed_on = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.crew.pace.note(self.taken, Instant::now());
            self.crew.between(self.handed_on);
        }
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.taking.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, unbounded};

    use super::*;

    /// Takes short requests one upon the other, until the calling thread's are brisk.
    fn hurry(crew: &Crew) {
        while !crew.pace.is_brisk() {
            let now = Instant::now();
            crew.pace.note(now, now);
        }
    }

    #[test]
    fn one_is_always_left() {
        let crew = Crew::new(3);
        let _turn = crew.turn();
        let (first, second) = (crew.work(Expected::Short), crew.work(Expected::Long));
        assert!(first.is_some() && second.is_some() && crew.work(Expected::Short).is_none());
        assert_eq!((crew.taken(), crew.working()), (1, 2));
        drop(first);
        assert!(crew.work(Expected::Short).is_some());
        assert!(Crew::new(1).work(Expected::Short).is_none());
    }

    #[test]
    fn who_rests_is_called_before_nobody_is_left() {
        let crew = Crew::new(2);
        std::thread::scope(|scope| {
            let resting = scope.spawn(|| crew.rests());
            while crew.taking.load(Ordering::Relaxed) == 2 {
                std::thread::yield_now();
            }
            // The last one does not rest, but may work: the other takes its place, called or by itself.
            assert!(!crew.rests());
            while crew.work(Expected::Long).is_none() {}
            assert!(resting.join().unwrap());
        });
        assert_eq!((crew.taking.load(Ordering::Relaxed), crew.working()), (2, 0));
    }

    #[test]
    fn who_rests_is_recalled() {
        let crew = Crew::new(2);
        crew.recall();
        std::thread::scope(|scope| {
            let resting = scope.spawn(|| crew.rests());
            while crew.taking.load(Ordering::Relaxed) == 2 {
                std::thread::yield_now();
            }
            crew.recall();
            assert!(resting.join().unwrap());
        });
        assert_eq!((crew.taking.load(Ordering::Relaxed), crew.working()), (2, 0));
    }

    #[test]
    fn a_deputy_takes_the_place_of_who_works_alone_for_long() {
        let crew = Crew::new(2);
        std::thread::scope(|scope| {
            let deputy = scope.spawn(|| crew.rests());
            while !crew.rest.lock().has_deputy {
                std::thread::yield_now();
            }
            hurry(&crew);
            let working = crew.work(Expected::Short).expect("the deputy looks");
            while crew.taking.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            drop(working);
            assert!(deputy.join().unwrap());
        });
        assert_eq!((crew.taking.load(Ordering::Relaxed), crew.working()), (2, 0));
    }

    /// Answers requests until nobody asks any more; some of them take long.
    fn serve(crew: &Crew, requests: &Receiver<(u32, Sender<u32>)>) {
        for (number, reply) in requests {
            let _turn = crew.turn();
            hurry(crew);
            // As a worker would, if nobody may work.
            let _working = crew.work(if number % 64 == 1 { Expected::Long } else { Expected::Short });
            if number % 512 == 0 {
                std::thread::sleep(Duration::from_millis(3));
            }
            reply.send(number).expect("who asks waits");
        }
    }

    #[test]
    fn all_are_answered_and_nobody_is_lost() {
        const THREADS: usize = 4;
        let crew = Crew::new(THREADS);
        let (ask, requests) = unbounded();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let requests = requests.clone();
                scope.spawn(|| serve(&crew, &{ requests }));
            }
            for _ in 0..3 {
                let ask = ask.clone();
                scope.spawn(move || {
                    let (reply, replies) = unbounded();
                    for number in 0..20_000 {
                        ask.send((number, reply.clone())).expect("somebody answers");
                        assert_eq!(replies.recv(), Ok(number));
                    }
                });
            }
            drop(ask);
        });
        let rest = crew.rest.lock();
        assert_eq!((rest.resting, rest.called, rest.has_deputy), (0, 0, false));
        assert_eq!(crew.taking.load(Ordering::Relaxed), THREADS);
    }
}

//! The lease: until when this machine may write to a volume of which it is the owner.
//!
//! A read of the block that shows this machine's number extends the lease. Another machine writes
//! its number into the block, then waits, and only then changes anything else. So when a read that
//! began at time `t` shows this machine's number, no other machine changes the volume before `t`
//! plus that wait, which is `check_interval + 6` seconds or more. The lease ends at `t` plus
//! `check_interval`, so that a request has the rest of the wait to reach the device. The interval
//! is that of the block that the other machine has read; the lease uses the shortest interval of
//! all blocks that it may have read.
//!
//! A write before the end of the lease proceeds. A later write first waits until the owner's thread
//! has read the block (H35). Once a read has shown another number, the lease is lost, and every
//! later write fails.
//!
//! On a fenced device the lease does not end, because the device refuses the writes of an owner
//! that lost its lock.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use parext4_device::{Device, QueueWaker, ReadNow, Sharing, WriteGuard};
use parext4_format::mmp::{Mmp, check_interval_after};

use super::location::MmpLocation;
use super::time::{Window, now};
use super::{MmpOptions, MmpState, MmpUse};
use crate::error::Error;
use crate::fault::{Fault, guarded};
use crate::health::Health;
use crate::sleep_timer::SleepTimer;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex, Rank};

/// The end of a lease that does not end.
const NEVER: u64 = u64::MAX;
/// Largest number of consecutive blocks with failed writes or flushes that an owner remembers.
const MOST_ATTEMPTS: usize = 64;

/// The lease of one owner.
#[derive(Debug)]
pub(super) struct Lease {
    place: MmpLocation,
    options: MmpOptions,
    fenced: bool,
    /// Whether the volume was closed without an error. The device may then be used for another
    /// purpose.
    closed: AtomicBool,
    /// End of the lease on the clock of [`now`], in nanoseconds.
    until: AtomicU64,
    state: Mutex<LeaseBlocks>,
    /// Condition that is notified when the lease was extended or lost.
    changed: Condvar,
    /// The sleep of the owner's thread.
    timer: SleepTimer,
}

#[derive(Debug)]
struct LeaseBlocks {
    /// The last block that this machine has made durable.
    mine: Mmp,
    /// The check interval of the block before `mine`, in seconds.
    previous: u16,
    /// The check interval of the present lease, in seconds.
    interval: u16,
    /// Later blocks, from old to new, whose writes or flushes have failed or are in progress. The
    /// device holds one of them or `mine`.
    attempts: VecDeque<Mmp>,
    /// Start of the last update.
    last_update: Option<Duration>,
    /// Start of the last read that returned this machine's number.
    last_read: Duration,
    /// Why the lease is lost.
    lost: Option<Arc<str>>,
    /// Why the owner no longer extends the lease, although the lease is not lost.
    retired: Option<&'static str>,
    /// Whether a write waits for the lease.
    wanted: bool,
    /// Queues with writes that wait for the lease.
    queues: Vec<QueueWaker>,
    health: Option<Arc<Health>>,
}

/// The permission to pass a request to the device now. The caller drops it when the device has the
/// request.
#[derive(Debug)]
#[must_use]
pub(super) struct Permit {
    _window: Window,
}

/// Whether writes may proceed.
#[derive(Debug)]
pub(super) enum LeaseState {
    Valid(Permit),
    Ended,
    Lost(io::Error),
}

impl LeaseBlocks {
    /// Returns whether this machine wrote the block.
    fn is_mine(&self, block: &Mmp) -> bool {
        self.mine == *block || self.attempts.contains(block)
    }

    /// Returns the shortest check interval of the blocks that another machine may have read before
    /// it wrote its number, up to the latest block of this machine.
    ///
    /// The other machine writes its number within a second after its read, or allows for all blocks
    /// that this machine could write meanwhile (`claim.rs`). Within a second, this machine ends at
    /// most one update and begins one.
    fn shortest_interval(&self) -> u16 {
        let attempts = self.attempts.iter().map(|block| block.check_interval);
        attempts.chain([self.mine.check_interval, self.previous]).min().unwrap_or(self.previous)
    }

    /// Returns the error of a write after the end of the lease; `None` if the owner's thread may
    /// still extend the lease.
    fn refusal(&self) -> Option<&str> {
        self.lost.as_deref().or(self.retired)
    }
}

impl Lease {
    /// Returns the lease of an owner that is about to claim the volume. The lease does not limit
    /// the writes of the claim.
    pub(super) fn new(device: &dyn Device, place: &MmpLocation, options: &MmpOptions) -> Self {
        let mine = place.mine(options);
        let state = LeaseBlocks {
            previous: mine.check_interval,
            interval: mine.check_interval,
            mine,
            attempts: VecDeque::new(),
            last_update: None,
            last_read: now(),
            lost: None,
            retired: None,
            wanted: false,
            queues: Vec::new(),
            health: None,
        };
        Self {
            place: place.clone(),
            options: options.clone(),
            fenced: device.sharing() == Sharing::Fenced,
            closed: AtomicBool::new(false),
            until: AtomicU64::new(NEVER),
            state: Mutex::new(Rank::Leaf, state),
            changed: Condvar::default(),
            timer: SleepTimer::default(),
        }
    }

    /// Begins the lease of an owner whose claim has written `mine`. The lease ends at once, unless
    /// the device is fenced.
    pub(super) fn begin(&self, mine: Mmp) {
        let mut state = self.state.lock();
        state.previous = mine.check_interval;
        state.mine = mine;
        drop(state);
        if !self.fenced {
            self.until.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the sleep of the owner's thread.
    pub(super) fn timer(&self) -> &SleepTimer {
        &self.timer
    }

    /// Sets the health of the volume, which stops when the lease is lost.
    pub(super) fn attach(&self, health: &Arc<Health>) {
        let lost = {
            let mut state = self.state.lock();
            state.health = Some(Arc::clone(health));
            state.lost.clone()
        };
        if let Some(why) = lost {
            health.stop(Error::Busy(why.to_string()));
        }
    }

    /// Returns true if the volume has stopped for any reason.
    pub(super) fn volume_has_stopped(&self) -> bool {
        let health = self.state.lock().health.clone();
        health.is_some_and(|health| health.check().is_err())
    }

    /// Returns the permission to write, if writes may proceed now.
    pub(super) fn permit(&self) -> Option<Permit> {
        // A stale value is the end of an earlier lease: the writer then waits, or still has the
        // time that the earlier lease gave it.
        let is_valid = match self.until.load(Ordering::Relaxed) {
            NEVER => true,
            until => guarded!(Fault::LeaseIgnored, nanoseconds(now()) < until, true),
        };
        is_valid.then(|| Permit { _window: Window::enter() })
    }

    /// Returns true if writes may proceed now.
    fn is_valid(&self) -> bool {
        self.permit().is_some()
    }

    /// Returns whether writes may proceed now. If the lease has ended, makes the owner's thread
    /// read the block soon.
    pub(super) fn lease_state(&self) -> LeaseState {
        if let Some(permit) = self.permit() {
            return LeaseState::Valid(permit);
        }
        let mut state = self.state.lock();
        if let Some(why) = state.refusal() {
            return LeaseState::Lost(refused(why));
        }
        if let Some(permit) = self.permit() {
            return LeaseState::Valid(permit);
        }
        state.wanted = true;
        drop(state);
        self.timer.wake();
        LeaseState::Ended
    }

    /// Blocks until writes may proceed.
    ///
    /// # Errors
    /// The lease is lost.
    pub(super) fn wait(&self) -> io::Result<Permit> {
        loop {
            match self.lease_state() {
                LeaseState::Valid(permit) => return Ok(permit),
                LeaseState::Lost(error) => return Err(error),
                LeaseState::Ended => {}
            }
            let mut state = self.state.lock();
            while state.wanted && !self.is_valid() {
                self.changed.wait(&mut state);
            }
        }
    }

    /// Registers `queue` to be woken when the lease is extended or lost. Returns false, without
    /// effect, if writes may proceed now or must fail.
    pub(super) fn wake_later(&self, queue: QueueWaker) -> bool {
        let mut state = self.state.lock();
        let waits = state.refusal().is_none() && !self.is_valid();
        if waits {
            state.wanted = true;
            state.queues.push(queue);
        }
        waits
    }

    /// Checks a block that was read, and extends the lease if the block is this machine's. Returns
    /// the next block to write; `None` if the lease is lost.
    pub(super) fn check(&self, found: &Mmp, began: Duration) -> Option<Mmp> {
        let mut state = self.state.lock();
        if state.lost.is_some() {
            return None;
        }
        if !guarded!(Fault::OtherOwnerIgnored, state.is_mine(found), true) {
            drop(state);
            self.lose(&lost_to(&MmpState::new(found, &self.place)));
            return None;
        }
        let next = self.next_block(&state, found, began);
        state.last_read = began;
        state.interval = state.shortest_interval().min(next.check_interval);
        self.extend(began, state.interval);
        self.notify(state);
        Some(next)
    }

    fn next_block(&self, state: &LeaseBlocks, found: &Mmp, began: Duration) -> Mmp {
        let since = state.last_update.map_or(Duration::ZERO, |last| began.saturating_sub(last));
        // The time is rounded, so that a thread that wakes a little late does not make other
        // machines wait longer.
        let second = self.options.second.as_nanos().max(1);
        let since = (since.as_nanos() + second / 2) / second;
        let slowest = u64::try_from(since).unwrap_or(u64::MAX).max(self.place.update_interval.into());
        let sequence = MmpLocation::sequence_after(found.sequence);
        let check_interval = check_interval_after(slowest);
        Mmp { sequence, time: self.place.seconds_now(), check_interval, ..found.clone() }
    }

    /// Records that `next` is about to be written, by an update that began at `began`.
    pub(super) fn attempt(&self, next: &Mmp, began: Duration) {
        let mut state = self.state.lock();
        if state.attempts.len() == MOST_ATTEMPTS {
            state.attempts.pop_front();
        }
        state.attempts.push_back(next.clone());
        state.last_update = Some(began);
    }

    /// Records that `next` was written. The lease is lost if the write took so long that another
    /// machine may have used the volume in between, whose number the write would have overwritten.
    pub(super) fn written(&self, next: Mmp) {
        let mut state = self.state.lock();
        let took = now().saturating_sub(state.last_read);
        let wait = Mmp { check_interval: state.interval, ..next }.wait(self.place.update_interval);
        state.previous = state.mine.check_interval;
        state.mine = next;
        state.attempts.clear();
        drop(state);
        if guarded!(Fault::LateUpdate, !self.fenced && took >= self.options.seconds(wait)) {
            self.lose(&format!(
                "the update of the block of multi-mount protection took {} seconds, and another machine may have used the \
                 volume meanwhile",
                took.as_secs()
            ));
        }
    }

    /// Records that an update failed. The owner retries at the next interval, as the kernel does.
    /// If a write waits, and the lease has ended, the lease is lost.
    pub(super) fn update_failed(&self, error: &Error) {
        let wanted = self.state.lock().wanted;
        if wanted && !self.is_valid() {
            self.lose(&format!("this machine cannot tell if it still owns the volume: {error}"));
        }
    }

    /// Stops the volume because a flush failed, which may have lost earlier writes of the volume.
    /// An open in progress fails.
    pub(super) fn flush_failed(&self, error: &Error) {
        let health = self.state.lock().health.clone();
        match health {
            Some(health) => drop(health.stop(error.clone())),
            None => self.end(&error.to_string(), error.clone()),
        }
    }

    /// Returns true if the lease is lost for good.
    pub(super) fn is_lost(&self) -> bool {
        self.state.lock().lost.is_some()
    }

    /// Returns why the lease is lost.
    pub(super) fn why_lost(&self) -> String {
        let state = self.state.lock();
        state.lost.as_deref().unwrap_or("the volume was lost").to_owned()
    }

    /// Ends the lease for good, because another machine may use the volume, and stops the volume.
    pub(super) fn lose(&self, why: &str) {
        self.end(why, Error::Busy(why.into()));
    }

    /// Ends the lease for good, because the device fails every request from now on, and stops the
    /// volume.
    pub(super) fn device_has_given_up(&self, error: &Error) {
        self.end(&error.to_string(), error.clone());
    }

    fn end(&self, why: &str, error: Error) {
        let mut state = self.state.lock();
        let first = state.lost.is_none();
        state.lost.get_or_insert_with(|| why.into());
        // This is done with the lock held, so that no update extends the lease afterwards.
        self.until.store(0, Ordering::Relaxed);
        let health = state.health.clone().filter(|_| first);
        self.notify(state);
        self.timer.stop();
        if let Some(health) = health {
            health.stop(error);
        }
    }

    /// Refuses writes after the end of the current lease, because the owner no longer extends it.
    pub(super) fn retire(&self, why: &'static str) {
        let mut state = self.state.lock();
        state.retired = Some(why);
        self.notify(state);
    }

    /// Refuses all writes of the volume from now on, because it is closed. With `is_clean`, all its
    /// writes are durable and its block is clean, so that the device may be used for another
    /// purpose.
    pub(super) fn close(&self, is_clean: bool) {
        self.retire("the volume is closed");
        let state = self.state.lock();
        self.until.store(0, Ordering::Relaxed);
        self.closed.store(is_clean && state.lost.is_none(), Ordering::Relaxed);
    }

    fn extend(&self, began: Duration, seconds: u16) {
        if !self.fenced {
            let until = nanoseconds(began + self.options.seconds(seconds.into()));
            self.until.store(until, Ordering::Relaxed);
        }
    }

    /// Wakes writers and queues that wait.
    fn notify(&self, mut state: crate::sync::MutexGuard<'_, LeaseBlocks>) {
        state.wanted = false;
        let queues = std::mem::take(&mut state.queues);
        drop(state);
        self.changed.notify_all();
        queues.iter().for_each(QueueWaker::wake);
    }
}

impl WriteGuard for Lease {
    fn may_write(&self) -> bool {
        self.is_valid() || self.closed.load(Ordering::Relaxed)
    }

    fn may_resend(&self, read: &mut ReadNow<'_>) -> io::Result<()> {
        // Until the claim is complete, the waits of the claim protect the volume.
        if self.until.load(Ordering::Relaxed) == NEVER || self.closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let began = now();
        let found = self.place.read_by(read).map_err(|error| match error {
            Error::Device { cause, .. } => io::Error::new(cause.kind(), cause),
            damaged => io::Error::new(io::ErrorKind::PermissionDenied, damaged),
        })?;
        match self.check(&found, began) {
            Some(_) => Ok(()),
            None => Err(io::Error::new(io::ErrorKind::PermissionDenied, self.why_lost())),
        }
    }
}

/// Describes how the volume was lost to the machine that wrote `other`.
fn lost_to(other: &MmpState) -> String {
    match other.usage {
        MmpUse::Clean => format!(
            "multi-mount protection: the volume was taken over and closed, or its block was cleared ({other}); this machine \
             writes nothing more"
        ),
        MmpUse::Fsck | MmpUse::InUse => {
            format!(
                "multi-mount protection: another machine has taken the volume over ({other}); this machine writes nothing more"
            )
        }
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER)
}

//! Where threads sleep until a page's filling, write-back or pins end.
//!
//! Who sleeps sets the word's waiters bit under the lock of a spot, which few words share, while what it waits for
//! still holds. Who ends that clears the bit in the same step and, if it was set, takes the lock before it wakes the
//! spot: by then the sleeper sleeps.

use super::nodes::Slot;
use super::word::{State, WAITERS};
use crate::fault::{Fault, planted};
use crate::stripes::Padded;
use crate::sync::Rank;
use crate::sync::atomic::Ordering;
use crate::sync::{Condvar, Mutex};

/// The model checker gets few, so that words meet in one.
const SPOTS: usize = if cfg!(shuttle) { 2 } else { 64 };

#[derive(Debug)]
pub(super) struct Parking([Padded<Spot>; SPOTS]);

#[derive(Debug)]
struct Spot {
    lock: Mutex<()>,
    changed: Condvar,
}

impl Parking {
    pub fn new() -> Self {
        let spot = || Spot { lock: Mutex::new(Rank::Leaf, ()), changed: Condvar::default() };
        Self(std::array::from_fn(|_| Padded(spot())))
    }

    fn spot(&self, slot: Slot<'_>) -> &Spot {
        // Neighbours go to different spots.
        &self.0[slot.place.spread() % SPOTS]
    }

    /// Sleeps as long as `holds` is true of the slot's word.
    #[cold]
    pub fn sleep_while(&self, slot: Slot<'_>, holds: impl Fn(State) -> bool) {
        let spot = self.spot(slot);
        let mut lock = spot.lock.lock();
        let announce = |word| holds(State(word)).then_some(word | WAITERS);
        while slot.word.update(Ordering::Relaxed, announce).is_ok() {
            spot.changed.wait(&mut lock);
        }
    }

    /// Wakes who sleeps, if `before` is the word as it was when the bit was cleared.
    pub fn wake(&self, slot: Slot<'_>, before: State) {
        if before.has_waiters() && !planted(Fault::WaitersForgotten) {
            self.wake_spot(self.spot(slot));
        }
    }

    #[cold]
    fn wake_spot(&self, spot: &Spot) {
        if !planted(Fault::WakeTooEarly) {
            drop(spot.lock.lock());
        }
        spot.changed.notify_all();
    }

    /// Changes the word in a way that may end what somebody waits for. Returns what it was.
    pub fn end(&self, slot: Slot<'_>, change: impl Fn(State) -> State) -> State {
        // Release: what was done before is seen by who finds the word so.
        let change = |word| Some(change(State(word)).0 & !WAITERS);
        let (Ok(before) | Err(before)) = slot.word.update(Ordering::AcqRel, change);
        self.wake(slot, State(before));
        State(before)
    }
}

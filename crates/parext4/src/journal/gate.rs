//! The gate: counts the handles in the running transaction and the blocks (credits) that they may
//! still register.
//!
//! It decides when a handle may enter, and lets the committer block until no handle is open. It
//! does not know what the handles change, nor the log.
//!
//! Invariant: the number of the running transaction changes only while the gate is closed and no
//! handle is inside.
//!
//! The state is spread over 32 atomic words. Each thread uses one of them, which it shares with few
//! other threads. A word holds, from its highest bit down:
//!
//! | bits | content |
//! |---|---|
//! | 63 | set while the gate is closed |
//! | 32..63 | the number of handles that entered through this word |
//! | 0..32 | spare credits, which earlier handles reserved and did not use |
//!
//! 1. A handle enters with one compare-and-swap, which checks that the gate is open, counts the
//!    handle, and acquires its credits from the spare ones.
//! 2. If the gate is closed or the word has too few spare credits, the handle acquires the lock: it
//!    blocks until the gate opens, and reserves credits of the transaction as a whole.
//! 3. A handle leaves with one addition, which releases its unused credits into the word. The last
//!    handle to leave a closed word wakes the committer.
//! 4. The committer sets the closed bit of every word and blocks until no word counts a handle.

use std::cell::Cell;

use crate::convert::saturating_u32;
use crate::fault::{Fault, guarded};
use crate::stripes::{Padded, Stripes};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// The number of words. Models use 2, so that threads meet in one word more often.
const WORDS: usize = if cfg!(shuttle) { 2 } else { 32 };

/// The bit of a word that is set while the gate is closed.
const CLOSED: u64 = 1 << 63;
/// The value that counts one handle in a word.
const HANDLE: u64 = 1 << 32;
/// The bits of a word that hold its spare credits.
const SPARE: u64 = HANDLE - 1;
/// The bits of a word that count handles.
const HANDLES: u64 = !(CLOSED | SPARE);

/// The gate to the running transaction.
#[derive(Debug)]
pub struct Gate {
    words: Stripes<AtomicU64, WORDS>,
    /// Number of the running transaction.
    tid: Padded<AtomicU64>,
    /// Credits of one transaction: the blocks that it may register.
    max: u32,
    state: Mutex<GateState>,
    /// Signalled when the last handle of a closed word leaves, and when the gate opens.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Credits of the transaction that are reserved: for open handles, for registered blocks, or
    /// spare in a word.
    granted: u32,
    /// True while the committer has closed the gate and will open it again.
    closing: bool,
    /// True once the gate is closed for good.
    shut: bool,
}

/// The result of [`Gate::enter`].
#[derive(Debug)]
pub enum EnterResult<'a> {
    /// The handle is inside.
    Entered(Permit<'a>),
    /// The transaction of this number has too few credits left. The caller must commit it and
    /// retry.
    Full(u64),
    /// The gate is closed for good.
    Shut,
}

/// A permit that counts as one handle inside the gate until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Permit<'a> {
    gate: &'a Gate,
    /// The word that counts the handle. `None` for the committer, which is alone.
    word: Option<&'a AtomicU64>,
    tid: u64,
    /// Blocks that the handle may still register. Dropping the permit releases them.
    credits: Cell<u32>,
}

impl Gate {
    /// Returns an open gate to transaction `tid`; each transaction registers at most `max` blocks.
    #[must_use]
    pub fn new(tid: u64, max: u32) -> Self {
        Self {
            words: Stripes::default(),
            tid: Padded(AtomicU64::new(tid)),
            max,
            state: Mutex::new(Rank::Transaction, GateState::default()),
            changed: Condvar::default(),
        }
    }

    /// Returns the number of the running transaction. It does not change while the caller holds a
    /// permit.
    pub fn tid(&self) -> u64 {
        // Relaxed: a thread inside the gate has synchronized through its word (`try_enter`). Other
        // threads must expect the number to change at any time.
        self.tid.load(Ordering::Relaxed)
    }

    /// Returns the number of the transaction that handles enter now. Everything that the caller did
    /// before happens before [`advance`](Self::advance) ends this transaction, because both acquire
    /// the lock.
    pub(super) fn open_tid(&self) -> u64 {
        let _state = self.state.lock();
        self.tid()
    }

    /// Enters the gate with `credits` blocks to register. Blocks while the gate is closed.
    pub fn enter(&self, credits: u32) -> EnterResult<'_> {
        let word = self.words.mine();
        if try_enter(word, credits) { self.entered(word, credits) } else { self.enter_slow(word, credits) }
    }

    fn entered<'a>(&'a self, word: &'a AtomicU64, credits: u32) -> EnterResult<'a> {
        let (tid, credits) = (self.tid(), Cell::new(credits));
        EnterResult::Entered(Permit { gate: self, word: Some(word), tid, credits })
    }

    #[cold]
    fn enter_slow<'a>(&'a self, word: &'a AtomicU64, credits: u32) -> EnterResult<'a> {
        let mut state = self.state.lock();
        while state.closing {
            self.changed.wait(&mut state);
        }
        if state.shut {
            return EnterResult::Shut;
        }
        if !self.grant(&mut state, credits) {
            return EnterResult::Full(self.tid());
        }
        // The gate is open and cannot close while this thread holds the lock.
        word.fetch_add(HANDLE, Ordering::Acquire);
        self.entered(word, credits)
    }

    /// Reserves credits of the transaction. Returns false if the transaction has too few, even with
    /// the spare credits of all words.
    fn grant(&self, state: &mut GateState, credits: u32) -> bool {
        if state.granted + credits > self.max {
            state.granted -= self.collect_spare();
        }
        let fits = state.granted + credits <= self.max;
        if fits {
            state.granted += credits;
        }
        fits
    }

    /// Removes the spare credits from all words and returns their number.
    fn collect_spare(&self) -> u32 {
        // Reads and clears each word in one step, because otherwise a handle could use credits that
        // are counted here. Relaxed: no other data depends on credits.
        let take = |word: &AtomicU64| {
            let old = guarded!(
                Fault::SpareTwice,
                word.fetch_and(!SPARE, Ordering::Relaxed),
                word.load(Ordering::Relaxed)
            );
            old & SPARE
        };
        let spare: u64 = self.words.iter().map(take).sum();
        saturating_u32(spare)
    }

    /// Closes the gate and blocks until all handles have left. Returns a permit for the committer,
    /// with all the credits that the transaction has left. Only one thread at a time may close the
    /// gate.
    pub fn close(&self) -> Permit<'_> {
        let mut state = self.state.lock();
        state.closing = true;
        self.close_words();
        while self.has_handles() {
            self.changed.wait(&mut state);
        }
        state.granted -= self.collect_spare();
        Permit { gate: self, word: None, tid: self.tid(), credits: Cell::new(self.max - state.granted) }
    }

    fn close_words(&self) {
        for word in self.words.iter() {
            word.fetch_or(CLOSED, Ordering::Relaxed);
        }
    }

    /// Returns the number of handles that are inside.
    pub(super) fn handles(&self) -> u64 {
        self.words.iter().map(|word| (word.load(Ordering::Acquire) & HANDLES) / HANDLE).sum()
    }

    fn has_handles(&self) -> bool {
        // Acquire pairs with the Release in `leave`, so that the committer sees the changes of the
        // handles that left.
        self.words.iter().any(|word| word.load(Ordering::Acquire) & HANDLES != 0)
    }

    /// Makes the next transaction the running one. The caller has closed the gate.
    pub fn advance(&self) {
        let mut state = self.state.lock();
        state.granted = 0;
        self.tid.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens the gate, unless it is shut for good, and wakes the threads that wait to enter.
    pub fn open(&self) {
        let mut state = self.state.lock();
        state.closing = false;
        if !state.shut {
            for word in self.words.iter() {
                word.fetch_and(!CLOSED, Ordering::Release);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Closes the gate for good. Handles that are inside may still leave.
    pub fn shut(&self) {
        let mut state = self.state.lock();
        state.shut = true;
        self.close_words();
    }

    /// Reserves more credits for a handle that is inside. This also works while the gate closes:
    /// the transaction of an open handle does not change.
    fn extend(&self, word: &AtomicU64, credits: u32) -> bool {
        take_spare(word, credits) || self.grant(&mut self.state.lock(), credits)
    }

    fn leave(&self, word: &AtomicU64, unused: u32) {
        // One addition updates both fields: it adds the credits and subtracts the handle without a
        // carry between them.
        let before = word.fetch_add(u64::from(unused).wrapping_sub(HANDLE), Ordering::Release);
        if guarded!(Fault::LeaveWithoutWake, before & CLOSED != 0 && before & HANDLES == HANDLE) {
            // The committer holds the lock from before it checks the words until it waits. So once
            // this thread has acquired the lock, the committer is either waiting, or will check
            // later and see that the handle has left.
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }
}

/// Counts a handle in `word` and acquires its credits from the word's spare credits. Returns false
/// if the gate is closed or the spare credits do not suffice.
fn try_enter(word: &AtomicU64, credits: u32) -> bool {
    let credits = u64::from(credits);
    // Acquire pairs with the Release in `Gate::open`, so that the handle sees the number that
    // `advance` stored.
    word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
        let open = guarded!(Fault::EnterClosed, word & CLOSED == 0, true);
        (open && word & SPARE >= credits).then(|| word + HANDLE - credits)
    })
    .is_ok()
}

/// Acquires spare credits of `word`. Returns false if the word has too few.
fn take_spare(word: &AtomicU64, credits: u32) -> bool {
    let credits = u64::from(credits);
    let take = |word: u64| (word & SPARE >= credits).then(|| word - credits);
    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
}

impl Permit<'_> {
    /// Returns the number of the transaction that the handle is in.
    #[must_use]
    pub fn tid(&self) -> u64 {
        self.tid
    }

    /// Acquires credits until at least `credits` are left. Returns false if the transaction has too
    /// few; does not block on a commit.
    #[must_use]
    pub fn ensure(&self, credits: u32) -> bool {
        let missing = credits.saturating_sub(self.credits.get());
        let enough = missing == 0 || self.word.is_some_and(|word| self.gate.extend(word, missing));
        if enough {
            self.credits.set(self.credits.get() + missing);
        }
        enough
    }

    /// Uses one credit. Returns false if none was left.
    pub fn spend(&self) -> bool {
        let left = self.credits.get().checked_sub(1);
        self.credits.set(left.unwrap_or(0));
        left.is_some()
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            // A failed model is being torn down: its primitives no longer work.
            return;
        }
        if let Some(word) = self.word {
            self.gate.leave(word, self.credits.get());
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const MAX: u32 = 8;

    fn enter(gate: &Gate, credits: u32) -> Option<Permit<'_>> {
        match gate.enter(credits) {
            EnterResult::Entered(permit) => Some(permit),
            EnterResult::Full(tid) => {
                assert_eq!(tid, gate.tid());
                None
            }
            EnterResult::Shut => panic!("the gate is shut"),
        }
    }

    #[test]
    fn a_transaction_grants_all_its_credits_and_no_more() {
        let gate = Gate::new(3, MAX);
        let (first, second) = (enter(&gate, 5).unwrap(), enter(&gate, 3).unwrap());
        assert!(enter(&gate, 1).is_none() && !second.ensure(4));
        assert_eq!(gate.handles(), 2);
        drop(first);
        assert!(second.ensure(MAX) && !second.ensure(MAX + 1));
        assert_eq!((0..9).filter(|_| second.spend()).count(), 8);
        drop(second);
        assert!(enter(&gate, 1).is_none(), "all blocks are registered");
        assert_eq!(gate.handles(), 0);
    }

    #[test]
    fn spare_credits_of_other_threads_are_found() {
        let gate = Gate::new(3, MAX);
        for _ in 0..4 {
            // Each thread has a word of its own.
            std::thread::scope(|scope| scope.spawn(|| assert!(enter(&gate, MAX).is_some())).join().unwrap());
        }
        assert_eq!(gate.state.lock().granted, MAX);
    }

    #[test]
    fn spare_credits_of_the_word_are_used_first() {
        let gate = Gate::new(3, MAX);
        drop(enter(&gate, 4));
        let permit = enter(&gate, 0).unwrap();
        assert!(permit.ensure(1) && permit.ensure(4));
        assert_eq!(gate.state.lock().granted, 4);
        drop(permit);
        let permit = enter(&gate, 4).unwrap();
        assert_eq!(gate.state.lock().granted, 4);
        assert!(permit.ensure(5));
        assert_eq!(gate.state.lock().granted, 5);
    }

    #[test]
    fn handles_enter_without_the_lock_before_and_after_a_commit() {
        let gate = Gate::new(3, MAX);
        let word = gate.words.mine();
        for tid in 3..5 {
            assert_eq!((gate.tid(), gate.open_tid()), (tid, tid));
            drop(enter(&gate, 2));
            assert!(!try_enter(word, 3) && try_enter(word, 2));
            gate.leave(word, 2);
            let committer = gate.close();
            assert!(!try_enter(word, 0));
            assert_eq!((0..9).filter(|_| committer.spend()).count(), 8);
            drop(committer);
            gate.advance();
            gate.open();
            assert!(try_enter(word, 0));
            gate.leave(word, 0);
        }
    }

    #[test]
    fn no_handle_enters_a_shut_gate() {
        let gate = Gate::new(3, MAX);
        let inside = enter(&gate, 2).unwrap();
        drop(enter(&gate, 2));
        gate.shut();
        for credits in [0, 1, MAX] {
            assert!(matches!(gate.enter(credits), EnterResult::Shut));
        }
        assert!(inside.ensure(3), "a handle that is inside goes on");
        drop(inside);
        gate.open();
        assert!(matches!(gate.enter(0), EnterResult::Shut));
    }
}

//! The gate to the running transaction: how many handles are inside, and how many blocks they may register.
//!
//! A handle passes through one word, which it shares with few other threads: whether the gate is closed, the
//! handles inside, and credits that earlier handles left for the next. While nobody closes the gate, that is
//! one atomic change on the way in and one on the way out. What the word cannot give comes from the count of
//! the whole transaction, behind a lock.
//!
//! The transaction behind the gate changes only while it is closed and nobody is inside.

use std::cell::Cell;

use crate::fault::{Fault, planted};
use crate::lock_order::Rank;
use crate::stripes::{Padded, Stripes};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// Words of a gate. The model checker gets few, to try more of what they do to each other.
const WORDS: usize = if cfg!(shuttle) { 2 } else { 32 };

/// In a word: the gate is closed.
const CLOSED: u64 = 1 << 63;
/// In a word: one handle inside.
const HANDLE: u64 = 1 << 32;
/// In a word: the credits that nobody uses.
const SPARE: u64 = HANDLE - 1;
/// In a word: the number of handles inside.
const HANDLES: u64 = !(CLOSED | SPARE);

/// The gate to the running transaction.
#[derive(Debug)]
pub struct Gate {
    words: Stripes<AtomicU64, WORDS>,
    /// The running transaction.
    tid: Padded<AtomicU64>,
    /// The most blocks that one transaction may register.
    max: u32,
    state: Mutex<State>,
    /// Signals that the last handle of a word left a closed gate, or that the gate was opened.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Credits of the transaction that were given out: those of open handles, those used, and the spare ones.
    granted: u32,
    closing: bool,
    /// No handle may enter any more.
    shut: bool,
}

/// The answer to whoever wants to enter.
#[derive(Debug)]
pub enum Entry<'a> {
    /// Inside.
    Inside(Pass<'a>),
    /// This transaction has no room; it must be committed first.
    Full(u64),
    /// The gate is shut for good.
    Shut,
}

/// A handle's place inside the gate, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Pass<'a> {
    gate: &'a Gate,
    /// Where it is counted; nowhere if it is the committer's, who is alone.
    word: Option<&'a AtomicU64>,
    tid: u64,
    /// Blocks that may still be registered; what is left goes back when the pass is dropped.
    credits: Cell<u32>,
}

impl Gate {
    /// An open gate to transaction `tid`; each transaction registers at most `max` blocks.
    #[must_use]
    pub fn new(tid: u64, max: u32) -> Self {
        Self {
            words: Stripes::default(),
            tid: Padded(AtomicU64::new(tid)),
            max,
            state: Mutex::new(Rank::Transaction, State::default()),
            changed: Condvar::default(),
        }
    }

    /// The running transaction. Inside the gate it stays the same.
    pub fn tid(&self) -> u64 {
        // Relaxed: who is inside has it from the word, see `try_enter`; others may see it change at once.
        self.tid.load(Ordering::Relaxed)
    }

    /// The transaction that handles enter now. All that the caller did before happens before the end of
    /// [`advance`](Self::advance) to the next one.
    pub(super) fn open_tid(&self) -> u64 {
        let _state = self.state.lock();
        self.tid()
    }

    /// Enters with `credits` blocks to register. Waits while the gate is closed.
    pub fn enter(&self, credits: u32) -> Entry<'_> {
        let word = self.words.mine();
        if try_enter(word, credits) { self.inside(word, credits) } else { self.enter_slowly(word, credits) }
    }

    fn inside<'a>(&'a self, word: &'a AtomicU64, credits: u32) -> Entry<'a> {
        Entry::Inside(Pass { gate: self, word: Some(word), tid: self.tid(), credits: Cell::new(credits) })
    }

    #[cold]
    fn enter_slowly<'a>(&'a self, word: &'a AtomicU64, credits: u32) -> Entry<'a> {
        let mut state = self.state.lock();
        while state.closing {
            self.changed.wait(&mut state);
        }
        if state.shut {
            return Entry::Shut;
        }
        if !self.grant(&mut state, credits) {
            return Entry::Full(self.tid());
        }
        // The gate is open and stays so under the lock.
        word.fetch_add(HANDLE, Ordering::Acquire);
        self.inside(word, credits)
    }

    /// Gives out credits of the transaction, if it has so many.
    fn grant(&self, state: &mut State, credits: u32) -> bool {
        if state.granted + credits > self.max {
            state.granted -= self.collect_spare();
        }
        let fits = state.granted + credits <= self.max;
        if fits {
            state.granted += credits;
        }
        fits
    }

    /// Takes the spare credits out of all words.
    fn collect_spare(&self) -> u32 {
        // In one step each: what is counted here nobody else may find. Relaxed: credits order nothing.
        let take = |word: &AtomicU64| {
            if planted(Fault::SpareTwice) {
                return word.load(Ordering::Relaxed) & SPARE;
            }
            word.fetch_and(!SPARE, Ordering::Relaxed) & SPARE
        };
        let spare: u64 = self.words.iter().map(take).sum();
        u32::try_from(spare).unwrap_or(u32::MAX)
    }

    /// Closes the gate and waits until all have left. Returns a pass for the committer, with all the credits
    /// that the transaction has left. One committer at a time.
    pub fn close(&self) -> Pass<'_> {
        let mut state = self.state.lock();
        state.closing = true;
        self.close_words();
        while self.has_handles() {
            self.changed.wait(&mut state);
        }
        state.granted -= self.collect_spare();
        Pass { gate: self, word: None, tid: self.tid(), credits: Cell::new(self.max - state.granted) }
    }

    fn close_words(&self) {
        for word in self.words.iter() {
            word.fetch_or(CLOSED, Ordering::Relaxed);
        }
    }

    fn has_handles(&self) -> bool {
        // Acquire pairs with the Release of those who left, so that the committer sees what they did.
        self.words.iter().any(|word| word.load(Ordering::Acquire) & HANDLES != 0)
    }

    /// Puts the next transaction behind the closed gate.
    pub fn advance(&self) {
        let mut state = self.state.lock();
        state.granted = 0;
        self.tid.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens the closed gate, unless it is shut.
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

    /// Lets nobody enter any more.
    pub fn shut(&self) {
        let mut state = self.state.lock();
        state.shut = true;
        self.close_words();
    }

    /// Takes more credits for a handle that is inside; closing or not, its transaction stays.
    fn extend(&self, word: &AtomicU64, credits: u32) -> bool {
        take_spare(word, credits) || self.grant(&mut self.state.lock(), credits)
    }

    fn leave(&self, word: &AtomicU64, unused: u32) {
        // In one step: credits go up and the handles down, so there is no carry between them.
        let before = word.fetch_add(u64::from(unused).wrapping_sub(HANDLE), Ordering::Release);
        if before & CLOSED != 0 && before & HANDLES == HANDLE && !planted(Fault::LeaveQuietly) {
            // With the lock taken, the committer waits already, or has yet to look and sees us gone.
            drop(self.state.lock());
            self.changed.notify_all();
        }
    }
}

/// Counts a handle in an open gate and takes its credits from the spare ones, if there are so many.
fn try_enter(word: &AtomicU64, credits: u32) -> bool {
    let credits = u64::from(credits);
    // Acquire pairs with the Release in `Gate::open`, so that who is in sees the transaction that was put
    // behind the gate before.
    word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
        let open = word & CLOSED == 0 || planted(Fault::EnterClosed);
        (open && word & SPARE >= credits).then(|| word + HANDLE - credits)
    })
    .is_ok()
}

/// Takes spare credits, if there are so many.
fn take_spare(word: &AtomicU64, credits: u32) -> bool {
    let credits = u64::from(credits);
    let take = |word: u64| (word & SPARE >= credits).then(|| word - credits);
    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
}

impl Pass<'_> {
    /// The transaction.
    #[must_use]
    pub fn tid(&self) -> u64 {
        self.tid
    }

    /// Makes sure that at least `credits` are left, from what the transaction has free. Never waits.
    #[must_use]
    pub fn ensure(&self, credits: u32) -> bool {
        let missing = credits.saturating_sub(self.credits.get());
        let enough = missing == 0 || self.word.is_some_and(|word| self.gate.extend(word, missing));
        if enough {
            self.credits.set(self.credits.get() + missing);
        }
        enough
    }

    /// Uses up one credit. Returns whether there was one.
    pub fn spend(&self) -> bool {
        let left = self.credits.get().checked_sub(1);
        self.credits.set(left.unwrap_or(0));
        left.is_some()
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            // A model that failed is torn down; its primitives work no more.
            return;
        }
        if let Some(word) = self.word {
            self.gate.leave(word, self.credits.get());
        }
    }
}

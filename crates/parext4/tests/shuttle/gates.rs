//! The gate to the running transaction, alone. If a thread is never woken, the scheduler reports a
//! deadlock.

use std::sync::Arc;
// Not the scheduler's atomics: the model's own counters must add no switch points.
use std::sync::Mutex;

use parext4::fault::Fault;
use parext4::{EnterResult, Gate, Permit};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{spawn, yield_now};

use super::support::{random, search, stopping};

/// Credits of a transaction.
const MAX: u32 = 8;

/// Checks `model` under many schedules, then that it fails with each of `faults`.
fn check(iterations: usize, faults: &[Fault], model: fn()) {
    search(iterations, faults, |iterations| {
        random(iterations, model);
        stopping(iterations, model);
    });
}

/// A gate, and the state of the transaction that it admits to.
struct Journal {
    gate: Gate,
    seen: Mutex<Seen>,
    /// Serializes committers.
    committer: shuttle::sync::Mutex<()>,
}

#[derive(Default)]
struct Seen {
    inside: u32,
    /// Blocks registered in the running transaction.
    registered: u32,
    /// Number of transactions, and of blocks in them.
    committed: u64,
    blocks: u32,
}

impl Journal {
    fn new() -> Arc<Self> {
        let seen = Mutex::new(Seen::default());
        Arc::new(Self { gate: Gate::new(1, MAX), seen, committer: shuttle::sync::Mutex::new(()) })
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Commits transaction `tid` unless another thread has.
    fn commit(&self, tid: u64) {
        let _committer = self.committer.lock().unwrap();
        if self.gate.tid() > tid {
            return;
        }
        let permit = self.gate.close();
        assert_eq!(self.seen().inside, 0, "a handle is in a transaction that is closed");
        // Other threads may run while the transaction is encoded.
        yield_now();
        let before = self.seen().registered;
        while permit.spend() {
            self.seen().registered += 1;
        }
        {
            let mut seen = self.seen();
            assert_eq!(seen.inside, 0, "a handle entered a transaction that is closed");
            assert_eq!(seen.registered, MAX, "credits are lost");
            seen.blocks += before;
            seen.registered = 0;
            seen.committed += 1;
        }
        drop(permit);
        self.gate.advance();
        self.gate.open();
    }

    /// Enters with `credits` credits, and commits if the transaction is full.
    fn begin(&self, credits: u32) -> Option<Permit<'_>> {
        loop {
            match self.gate.enter(credits) {
                EnterResult::Entered(permit) => {
                    self.seen().inside += 1;
                    assert_eq!(permit.tid(), self.gate.tid());
                    return Some(permit);
                }
                EnterResult::Full(tid) => self.commit(tid),
                EnterResult::Shut => return None,
            }
        }
    }

    fn register(&self, permit: &Permit<'_>) {
        assert!(permit.spend(), "the credits were there");
        self.seen().registered += 1;
        assert!(self.seen().registered <= MAX, "more blocks than the transaction's limit");
    }

    fn end(&self, permit: Permit<'_>) {
        assert_eq!(permit.tid(), self.gate.tid(), "the transaction changed under a handle");
        self.seen().inside -= 1;
        drop(permit);
    }

    /// Opens a handle with reserved credits, registers blocks, and may ask for more credits.
    /// Returns how many blocks it registered.
    fn handle(&self, credits: u32) -> Option<u32> {
        let permit = self.begin(credits)?;
        yield_now();
        let mut used = thread_rng().gen_range(0..=credits);
        (0..used).for_each(|_| self.register(&permit));
        if thread_rng().gen_bool(0.3) && permit.ensure(credits + 1) {
            self.register(&permit);
            used += 1;
        }
        self.end(permit);
        Some(used)
    }
}

#[test]
fn no_handle_enters_a_transaction_that_closes() {
    check(3000, &[Fault::EnterClosed, Fault::LeaveWithoutWake], || {
        let journal = Journal::new();
        let worker = |credits: u32| {
            let journal = Arc::clone(&journal);
            spawn(move || (0..2).for_each(|_| assert!(journal.handle(credits).is_some())))
        };
        let workers = [worker(0), worker(1), worker(0)];
        for tid in 1..=2 {
            journal.commit(tid);
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(journal.gate.tid(), journal.seen().committed + 1);
    });
}

#[test]
fn credits_are_neither_lost_nor_given_twice() {
    check(3000, &[Fault::SpareTwice], || {
        let journal = Journal::new();
        let worker = |credits: u32| {
            let journal = Arc::clone(&journal);
            spawn(move || (0..3).map(|_| journal.handle(credits).expect("not shut")).sum::<u32>())
        };
        let workers = [worker(1), worker(3), worker(4)];
        let used: u32 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        journal.commit(journal.gate.tid());
        assert_eq!(journal.seen().blocks, used, "each block is in one transaction");
    });
}

#[test]
fn no_handle_enters_a_gate_that_is_shut() {
    check(3000, &[Fault::EnterClosed], || {
        let journal = Journal::new();
        let worker = |credits: u32| {
            let journal = Arc::clone(&journal);
            spawn(move || while journal.handle(credits).is_some() {})
        };
        let workers = [worker(0), worker(2)];
        yield_now();
        journal.gate.shut();
        journal.commit(journal.gate.tid());
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(journal.seen().inside, 0);
        assert!(journal.begin(0).is_none());
    });
}

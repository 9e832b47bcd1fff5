//! Compares the lock with a naive model on one thread: for any sequence of operations, the lock
//! must grant exactly when the model does. Tests and the fuzzer use it.
//!
//! Ranges are multiples of a unit, so that they lie in one stripe of the lock, in several, or are
//! wide.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sync::Mutex;
use crate::{ByteRange, Mode, OwnedRangeGuard, RangeLock, Request};

/// An operation. Its index, modulo their number, chooses a holder or a request.
#[derive(Clone, Debug)]
pub enum Op {
    /// Requests a range with a callback.
    Request(ByteRange, Mode),
    /// Tries to acquire a range.
    Try(ByteRange, Mode),
    /// Makes a `Request` that is never waited for.
    Enqueue(ByteRange, Mode),
    /// Cancels a request that `Enqueue` made, granted or not.
    Cancel(usize),
    /// Releases one of the holders.
    Release(usize),
    /// Downgrades one of the holders.
    Downgrade(usize),
    /// Shrinks one of the holders to the intersection of its range with this one, if they overlap.
    Shrink(usize, ByteRange),
}

/// Units of ranges in bytes: ranges within one stripe, across stripes at odd offsets, of whole
/// stripes, and wide.
pub const UNITS: [u64; 4] = [1, 24 << 10, 64 << 10, 3 << 20];

/// Performs operations on a lock and on the model, and compares the two after each.
///
/// # Panics
/// If they differ.
pub fn compare(ops: impl IntoIterator<Item = Op>) {
    let lock = Arc::new(RangeLock::new());
    let mut pair = Pair::new(&lock);
    for op in ops {
        pair.apply(op);
        pair.check();
    }
    while let Some((id, ..)) = pair.model.holders().first().copied() {
        pair.release(Some(id));
        pair.check();
    }
    assert!(lock.is_idle());
}

/// Decodes the bytes of a fuzzer into operations.
pub fn decode(bytes: &[u8]) -> impl Iterator<Item = Op> {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let unit = UNITS[usize::from(*first) % UNITS.len()];
    rest.chunks_exact(4).map(move |op| {
        let (index, mode) = (usize::from(op[1]), if op[3] & 1 == 0 { Mode::Shared } else { Mode::Exclusive });
        let (start, len) = (u64::from(op[1]) % 32, u64::from(op[2] % 16));
        // Some ranges have no end, and some requests have one range in common.
        let (start, end) = match op[3] >> 1 & 15 {
            0 => (start, u64::MAX),
            1 => (7, 8),
            _ => (start, start + 1 + len),
        };
        let range = ByteRange::new(start * unit, end.saturating_mul(unit));
        match op[0] % 12 {
            0..4 => Op::Request(range, mode),
            4 => Op::Try(range, mode),
            5 => Op::Enqueue(range, mode),
            6 => Op::Cancel(index),
            7..10 => Op::Release(index),
            10 => Op::Downgrade(index),
            _ => Op::Shrink(usize::from(op[2]), range),
        }
    })
}

struct Claim {
    id: usize,
    range: ByteRange,
    mode: Mode,
    granted: bool,
}

/// The definition: a request is granted once no earlier request conflicts with it.
#[derive(Default)]
struct Model(Vec<Claim>);

impl Model {
    fn blocked(&self, before: usize, range: ByteRange, mode: Mode) -> bool {
        self.0[..before]
            .iter()
            .any(|c| c.range.overlaps(&range) && (c.mode == Mode::Exclusive || mode == Mode::Exclusive))
    }

    fn request(&mut self, id: usize, range: ByteRange, mode: Mode) -> bool {
        let granted = !self.blocked(self.0.len(), range, mode);
        self.0.push(Claim { id, range, mode, granted });
        granted
    }

    fn regrant(&mut self) {
        for i in 0..self.0.len() {
            self.0[i].granted |= !self.blocked(i, self.0[i].range, self.0[i].mode);
        }
    }

    fn get(&mut self, id: usize) -> &mut Claim {
        self.0.iter_mut().find(|c| c.id == id).expect("each holder is in the model")
    }

    fn holders(&self) -> Vec<(usize, ByteRange, Mode)> {
        self.0.iter().filter(|c| c.granted).map(|c| (c.id, c.range, c.mode)).collect()
    }
}

type Held = Arc<Mutex<BTreeMap<usize, OwnedRangeGuard>>>;

struct Pair<'a> {
    lock: &'a Arc<RangeLock>,
    held: Held,
    requests: BTreeMap<usize, Request<'a>>,
    model: Model,
    next_id: usize,
}

impl<'a> Pair<'a> {
    fn new(lock: &'a Arc<RangeLock>) -> Self {
        Self { lock, held: Held::default(), requests: BTreeMap::new(), model: Model::default(), next_id: 0 }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Request(range, mode) => self.request(range, mode),
            Op::Try(range, mode) => self.try_request(range, mode),
            Op::Enqueue(range, mode) => {
                let id = self.new_id();
                self.requests.insert(id, self.lock.request(range, mode));
                self.model.request(id, range, mode);
            }
            Op::Cancel(index) => {
                let ids = self.requests.keys().copied().collect();
                self.release(choose(ids, index));
            }
            Op::Release(index) => self.release(self.choose_holder(index)),
            Op::Downgrade(index) => self.narrow(index, |guard| {
                guard.downgrade();
            }),
            Op::Shrink(index, to) => self.narrow(index, |guard| {
                let held = guard.range();
                if held.overlaps(&to) {
                    guard.shrink(ByteRange::new(held.start().max(to.start()), held.end().min(to.end())));
                }
            }),
        }
        self.model.regrant();
    }

    fn request(&mut self, range: ByteRange, mode: Mode) {
        let (id, held) = (self.new_id(), Arc::clone(&self.held));
        let at_once = self.lock.lock_with(range, mode, move |guard| {
            held.lock().unwrap().insert(id, guard);
        });
        assert_eq!(at_once, self.model.request(id, range, mode));
    }

    fn try_request(&mut self, range: ByteRange, mode: Mode) {
        let id = self.new_id();
        let guard = self.lock.try_lock_owned(range, mode);
        assert_eq!(guard.is_none(), self.model.blocked(self.model.0.len(), range, mode));
        if let Some(guard) = guard {
            self.model.request(id, range, mode);
            self.held.lock().unwrap().insert(id, guard);
        }
    }

    fn release(&mut self, id: Option<usize>) {
        let Some(id) = id else { return };
        // Unlocks the map before the guard is dropped: the release runs callbacks that insert into
        // the map.
        let guard = self.held.lock().unwrap().remove(&id);
        drop((guard, self.requests.remove(&id)));
        self.model.0.retain(|c| c.id != id);
        self.model.regrant();
    }

    fn narrow(&mut self, index: usize, change: impl FnOnce(&mut OwnedRangeGuard)) {
        let Some(id) = self.choose_holder(index) else { return };
        let mut guard = self.held.lock().unwrap().remove(&id).expect("the id was chosen from the map");
        change(&mut guard);
        let claim = self.model.get(id);
        claim.range = guard.range();
        claim.mode = guard.mode();
        self.held.lock().unwrap().insert(id, guard);
    }

    fn choose_holder(&self, index: usize) -> Option<usize> {
        choose(self.held.lock().unwrap().keys().copied().collect(), index)
    }

    fn new_id(&mut self) -> usize {
        self.next_id += 1;
        self.next_id
    }

    fn check(&self) {
        let held: Vec<_> =
            self.held.lock().unwrap().iter().map(|(id, g)| (*id, g.range(), g.mode())).collect();
        let mut holders = self.model.holders();
        let (granted, present) = (holders.len(), self.model.0.len());
        holders.retain(|(id, ..)| !self.requests.contains_key(id));
        assert_eq!(held, holders);
        assert_eq!(self.lock.waiters(), present - granted);
        assert_eq!(self.lock.is_idle(), present == 0);
    }
}

fn choose(ids: Vec<usize>, index: usize) -> Option<usize> {
    (!ids.is_empty()).then(|| ids[index % ids.len()])
}

#[cfg(test)]
mod tests;

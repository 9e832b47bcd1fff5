//! Property test on one thread: for random sequences of operations the lock grants exactly when a naive model does.
//! Ranges are multiples of a unit, so that they lie in one stripe of the lock, in several, or are wide.
#![cfg(not(shuttle))]

use proptest::prelude::*;
use rangelock::{ByteRange, Mode, OwnedRangeGuard, RangeLock, Request};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug)]
enum Op {
    Request(ByteRange, Mode),
    Try(ByteRange, Mode),
    /// Makes a `Request` that is never waited for.
    Enqueue(ByteRange, Mode),
    /// Cancels one of these requests, granted or not.
    Cancel(prop::sample::Index),
    /// Releases one of the holders, chosen by the index; so for the operations below.
    Release(prop::sample::Index),
    Downgrade(prop::sample::Index),
    /// Shrinks to the part of the held range that is in this one, if they overlap.
    Shrink(prop::sample::Index, ByteRange),
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
        // Unlocks the map before the guard is dropped: the release runs callbacks that insert into the map.
        let guard = self.held.lock().unwrap().remove(&id);
        drop((guard, self.requests.remove(&id)));
        self.model.0.retain(|c| c.id != id);
        self.model.regrant();
    }

    fn narrow(&mut self, index: prop::sample::Index, change: impl FnOnce(&mut OwnedRangeGuard)) {
        let Some(id) = self.choose_holder(index) else { return };
        let mut guard = self.held.lock().unwrap().remove(&id).expect("the id was chosen from the map");
        change(&mut guard);
        let claim = self.model.get(id);
        claim.range = guard.range();
        claim.mode = guard.mode();
        self.held.lock().unwrap().insert(id, guard);
    }

    fn choose_holder(&self, index: prop::sample::Index) -> Option<usize> {
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

fn choose(ids: Vec<usize>, index: prop::sample::Index) -> Option<usize> {
    (!ids.is_empty()).then(|| *index.get(&ids))
}

/// Units in bytes: ranges within one stripe, across stripes at odd offsets, of whole stripes, and wide.
const UNITS: [u64; 4] = [1, 24 << 10, 64 << 10, 3 << 20];

/// Most ranges that are held before the random operations start, so that the lock expands early.
const CROWD: u64 = 20;

fn range(unit: u64) -> impl Strategy<Value = ByteRange> {
    prop_oneof![
        8 => (0u64..32, 1u64..12).prop_map(move |(start, len)| (start, start + len)),
        2 => (0u64..32).prop_map(move |start| (start, start + 1)),
        // A range that many requests have in common.
        2 => Just((7, 8)),
        1 => (0u64..32).prop_map(move |start| (start, u64::MAX)),
    ]
    .prop_map(move |(start, end)| ByteRange::new(start * unit, end.saturating_mul(unit)))
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Shared), Just(Mode::Exclusive)]
}

fn op(unit: u64) -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (range(unit), mode()).prop_map(|(r, m)| Op::Request(r, m)),
        1 => (range(unit), mode()).prop_map(|(r, m)| Op::Try(r, m)),
        3 => any::<prop::sample::Index>().prop_map(Op::Release),
        1 => (range(unit), mode()).prop_map(|(r, m)| Op::Enqueue(r, m)),
        1 => any::<prop::sample::Index>().prop_map(Op::Cancel),
        1 => any::<prop::sample::Index>().prop_map(Op::Downgrade),
        1 => (any::<prop::sample::Index>(), range(unit)).prop_map(|(i, r)| Op::Shrink(i, r)),
    ]
}

/// A number of shared requests for adjacent ranges, followed by random operations.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let crowd = prop_oneof![Just(0), 0..=CROWD];
    (prop::sample::select(UNITS.to_vec()), crowd).prop_flat_map(|(unit, count)| {
        let crowd = move |i: u64| Op::Request(ByteRange::new(i * unit, (i + 1) * unit), Mode::Shared);
        let first: Vec<_> = (0..count).map(crowd).collect();
        prop::collection::vec(op(unit), 1..80).prop_map(move |ops| [first.clone(), ops].concat())
    })
}

proptest! {
    #[test]
    fn grants_exactly_when_the_model_does(ops in ops()) {
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
        prop_assert!(lock.is_idle());
    }
}

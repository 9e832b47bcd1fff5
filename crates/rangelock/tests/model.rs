//! Random sequences of operations, one thread: the lock grants exactly when a naive model does. The ranges are
//! made of units of several lengths, so that they fill part of a stripe of the lock, or a few, or all.
#![cfg(not(shuttle))]

use proptest::prelude::*;
use rangelock::{ByteRange, Mode, OwnedRangeGuard, RangeLock, Request};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug)]
enum Op {
    Request(ByteRange, Mode),
    Try(ByteRange, Mode),
    /// Takes a place in the queue, which is never waited for.
    Place(ByteRange, Mode),
    /// Gives up one of these places, granted or not.
    GiveUp(prop::sample::Index),
    /// The following act on one of the holders, chosen by the index.
    Release(prop::sample::Index),
    Downgrade(prop::sample::Index),
    /// Shrink to the part of the range held that lies in this one, if there is one.
    Shrink(prop::sample::Index, ByteRange),
}

struct Claim {
    id: usize,
    range: ByteRange,
    mode: Mode,
    granted: bool,
}

/// The definition, word for word: a request is granted once no earlier one conflicts with it.
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
        self.0.iter_mut().find(|c| c.id == id).expect("a holder is in the model")
    }

    fn holders(&self) -> Vec<(usize, ByteRange, Mode)> {
        self.0.iter().filter(|c| c.granted).map(|c| (c.id, c.range, c.mode)).collect()
    }
}

type Held = Arc<Mutex<BTreeMap<usize, OwnedRangeGuard>>>;

struct Pair<'a> {
    lock: &'a Arc<RangeLock>,
    held: Held,
    places: BTreeMap<usize, Request<'a>>,
    model: Model,
    next_id: usize,
}

impl<'a> Pair<'a> {
    fn new(lock: &'a Arc<RangeLock>) -> Self {
        Self { lock, held: Held::default(), places: BTreeMap::new(), model: Model::default(), next_id: 0 }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Request(range, mode) => self.request(range, mode),
            Op::Try(range, mode) => self.try_request(range, mode),
            Op::Place(range, mode) => {
                let id = self.new_id();
                self.places.insert(id, self.lock.request(range, mode));
                self.model.request(id, range, mode);
            }
            Op::GiveUp(index) => {
                let ids = self.places.keys().copied().collect();
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
        // Out of the map first: the release runs callbacks that insert into it.
        let guard = self.held.lock().unwrap().remove(&id);
        drop((guard, self.places.remove(&id)));
        self.model.0.retain(|c| c.id != id);
        self.model.regrant();
    }

    fn narrow(&mut self, index: prop::sample::Index, change: impl FnOnce(&mut OwnedRangeGuard)) {
        let Some(id) = self.choose_holder(index) else { return };
        let mut guard = self.held.lock().unwrap().remove(&id).expect("chosen among the holders");
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
        holders.retain(|(id, ..)| !self.places.contains_key(id));
        assert_eq!(held, holders);
        assert_eq!(self.lock.waiters(), present - granted);
        assert_eq!(self.lock.is_idle(), present == 0);
    }
}

fn choose(ids: Vec<usize>, index: prop::sample::Index) -> Option<usize> {
    (!ids.is_empty()).then(|| *index.get(&ids))
}

/// Within one stripe, across stripes at odd places, whole stripes, and wide.
const UNITS: [u64; 4] = [1, 24 << 10, 64 << 10, 3 << 20];

/// Many in a row hold ranges at first, so that the lock soon has to spread.
const CROWD: u64 = 20;

fn range(unit: u64) -> impl Strategy<Value = ByteRange> {
    prop_oneof![
        8 => (0u64..32, 1u64..12).prop_map(move |(start, len)| (start, start + len)),
        2 => (0u64..32).prop_map(move |start| (start, start + 1)),
        // Everybody wants this one.
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
        1 => (range(unit), mode()).prop_map(|(r, m)| Op::Place(r, m)),
        1 => any::<prop::sample::Index>().prop_map(Op::GiveUp),
        1 => any::<prop::sample::Index>().prop_map(Op::Downgrade),
        1 => (any::<prop::sample::Index>(), range(unit)).prop_map(|(i, r)| Op::Shrink(i, r)),
    ]
}

/// A number of requests that the lock gets before those that are random, and the latter.
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

//! Random sequences of operations, one thread: the lock grants exactly when a naive model does.
#![cfg(not(shuttle))]

use proptest::prelude::*;
use rangelock::{ByteRange, Mode, OwnedRangeGuard, RangeLock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug)]
enum Op {
    Request(ByteRange, Mode),
    Try(ByteRange, Mode),
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

struct Pair {
    lock: Arc<RangeLock>,
    held: Held,
    model: Model,
    next_id: usize,
}

impl Pair {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Request(range, mode) => self.request(range, mode),
            Op::Try(range, mode) => self.try_request(range, mode),
            Op::Release(index) => {
                if let Some(id) = self.choose(index) {
                    self.release(id);
                }
            }
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

    fn release(&mut self, id: usize) {
        // Out of the map first: the release runs callbacks that insert into it.
        let guard = self.held.lock().unwrap().remove(&id);
        drop(guard);
        self.model.0.retain(|c| c.id != id);
        self.model.regrant();
    }

    fn narrow(&mut self, index: prop::sample::Index, change: impl FnOnce(&mut OwnedRangeGuard)) {
        let Some(id) = self.choose(index) else { return };
        let mut guard = self.held.lock().unwrap().remove(&id).expect("chosen among the holders");
        change(&mut guard);
        let claim = self.model.get(id);
        claim.range = guard.range();
        claim.mode = guard.mode();
        self.held.lock().unwrap().insert(id, guard);
    }

    fn choose(&self, index: prop::sample::Index) -> Option<usize> {
        let ids: Vec<_> = self.held.lock().unwrap().keys().copied().collect();
        (!ids.is_empty()).then(|| *index.get(&ids))
    }

    fn new_id(&mut self) -> usize {
        self.next_id += 1;
        self.next_id
    }

    fn check(&self) {
        let held: Vec<_> =
            self.held.lock().unwrap().iter().map(|(id, g)| (*id, g.range(), g.mode())).collect();
        assert_eq!(held, self.model.holders());
        let waiting = self.model.0.len() - held.len();
        assert_eq!(self.lock.holders_and_waiters(), (held.len(), waiting));
        assert_eq!(self.lock.is_idle(), held.is_empty());
    }
}

fn range() -> impl Strategy<Value = ByteRange> {
    prop_oneof![
        8 => (0u64..32, 1u64..12).prop_map(|(start, len)| ByteRange::new(start, start + len)),
        1 => (0u64..32).prop_map(ByteRange::from),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Shared), Just(Mode::Exclusive)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (range(), mode()).prop_map(|(r, m)| Op::Request(r, m)),
        1 => (range(), mode()).prop_map(|(r, m)| Op::Try(r, m)),
        3 => any::<prop::sample::Index>().prop_map(Op::Release),
        1 => any::<prop::sample::Index>().prop_map(Op::Downgrade),
        1 => (any::<prop::sample::Index>(), range()).prop_map(|(i, r)| Op::Shrink(i, r)),
    ]
}

proptest! {
    #[test]
    fn grants_exactly_when_the_model_does(ops in prop::collection::vec(op(), 1..80)) {
        let mut pair =
            Pair { lock: Arc::default(), held: Held::default(), model: Model::default(), next_id: 0 };
        for op in ops {
            pair.apply(op);
            pair.check();
        }
        while let Some((id, ..)) = pair.model.holders().first().copied() {
            pair.release(id);
            pair.check();
        }
        prop_assert!(pair.lock.is_idle());
    }
}

//! Random operations, and the inputs that the fuzzer keeps.

use proptest::prelude::*;

use super::{Op, UNITS, compare, decode};
use crate::{ByteRange, Mode};

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
        3 => any::<usize>().prop_map(Op::Release),
        1 => (range(unit), mode()).prop_map(|(r, m)| Op::Enqueue(r, m)),
        1 => any::<usize>().prop_map(Op::Cancel),
        1 => any::<usize>().prop_map(Op::Downgrade),
        1 => (any::<usize>(), range(unit)).prop_map(|(i, r)| Op::Shrink(i, r)),
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
        compare(ops);
    }
}

/// The inputs of the fuzzer in the repository.
#[test]
fn grants_exactly_when_the_model_does_for_inputs_of_the_fuzzer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/inputs/range_lock");
    for entry in std::fs::read_dir(folder).unwrap() {
        compare(decode(&std::fs::read(entry.unwrap().path()).unwrap()));
    }
}

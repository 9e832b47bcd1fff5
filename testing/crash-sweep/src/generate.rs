//! Sequences in the manner of ACE: every operation over two directories with two files each, with
//! every persistence.

use std::sync::LazyLock;

use parext4::{EmptiedLog, XattrMode};
use testkit::ops::{FileOp, Op, Persist, Step, Tree, Way};
use testkit::rng::Rng;

use crate::op::{
    FILE_BYTES, PERSISTS, PIECE, UNTIMED, append, collapse, insert, set_len, write, write_short, zero,
};
use crate::start::{COMMON, XATTR, content, initial};

/// Offsets of writes: at the start, overlapping it, in the middle, and over the end of a file of
/// [`FILE_BYTES`].
const OFFSETS: [u64; 4] = [0, PIECE / 2, 2 * PIECE, FILE_BYTES - PIECE / 2];
/// An offset inside a sector, for buffered writes.
const UNALIGNED: u64 = 700;

/// The operations. `/a/1` and `/b/1` exist with data, `/b` also has `2`, which is short; `/a/2` is
/// free.
static OPERATIONS: LazyLock<Vec<Op>> = LazyLock::new(operations);

fn operations() -> Vec<Op> {
    let (old, free, other, short) = ("/a/1", "/a/2", "/b/1", "/b/2");
    let mut ops = vec![
        Op::Create(free),
        Op::MakeDir("/a/d"),
        Op::MakeDir("/c"),
        Op::Link(old, free),
        Op::Symlink(free, "target"),
        Op::Rename(old, free),
        Op::Rename(old, other),
        Op::Rename(short, old),
        Op::Rename("/a", "/c"),
        Op::Exchange(old, other),
        Op::Unlink(old),
        Op::UnlinkOpen(other),
        Op::RemoveDir("/e"),
        Op::SetXattr { path: old, name: XATTR, len: 1, mode: XattrMode::Any },
        Op::RemoveXattr { path: other, name: XATTR },
        Op::Chmod(old),
        Op::Chmod("/b"),
        Op::Chown(old),
        collapse(old),
        insert(old),
        write(old, UNALIGNED, Way::Buffered),
        write_short(short),
        write_short(free),
        append(short, Way::Buffered),
        write(short, 0, Way::Direct),
        set_len(short, PIECE),
    ];
    ops.extend([write(old, PIECE / 2, Way::Synced), append(old, Way::Synced)]);
    for way in [Way::Buffered, Way::Direct, Way::Queued] {
        ops.extend(OFFSETS.map(|offset| write(old, offset, way)));
        ops.push(write(free, 0, way));
        ops.push(append(old, way));
    }
    ops.extend([0, PIECE / 2, FILE_BYTES + PIECE].map(|size| set_len(old, size)));
    for keep_size in [false, true] {
        let allocate = FileOp::Allocate { offset: FILE_BYTES, len: PIECE, keep_size };
        ops.extend([Op::File(old, allocate), zero(old, PIECE / 2, keep_size)]);
        ops.push(zero(old, FILE_BYTES - PIECE / 2, keep_size));
    }
    for offset in [PIECE / 2, FILE_BYTES - PIECE] {
        ops.push(Op::File(old, FileOp::PunchHole { offset, len: PIECE }));
    }
    ops
}

/// Operations on names in the directory that threads share. Only trees of threads have it.
const IN_COMMON: [Op; 9] = [
    Op::Create("/s/1"),
    Op::MakeDir("/s/d"),
    Op::Link("/b/1", "/s/2"),
    Op::Rename("/a/1", "/s/1"),
    Op::Rename("/s/1", "/s/2"),
    Op::Rename("/s/2", "/a/2"),
    Op::Unlink("/s/1"),
    Op::RemoveDir("/s/d"),
    write("/s/1", 0, Way::Buffered),
];

/// Returns the kinds of persistence of the sequences of `length` steps that are all tried. A timed
/// commit takes milliseconds, so longer sequences have none.
fn persists(length: u32) -> &'static [Persist] {
    if length == 1 { &PERSISTS } else { UNTIMED }
}

/// Returns the number of all sequences of `length` steps, the impossible ones included.
pub fn count(length: u32) -> u64 {
    ((OPERATIONS.len() * persists(length).len()) as u64).pow(length)
}

/// Returns sequence `index` of all sequences of `length` steps; `None` if one of its operations
/// would fail.
pub fn sequence(length: u32, mut index: u64) -> Option<Vec<Step>> {
    let mut choose = |len: usize| {
        let chosen = index % len as u64;
        index /= len as u64;
        usize::try_from(chosen).expect("below a length")
    };
    let persists = persists(length);
    let steps: Vec<Step> = (0..length)
        .map(|_| (OPERATIONS[choose(OPERATIONS.len())], persists[choose(persists.len())]))
        .collect();
    are_possible(&steps).then_some(steps)
}

/// Returns true if all steps succeed in turn.
pub fn are_possible(steps: &[Step]) -> bool {
    let after = |tree: Tree, (nth, (op, _)): (u8, &Step)| tree.after(op, content(0, nth));
    (0..).zip(steps).try_fold(initial(0), after).is_some()
}

/// Returns `length` random steps that succeed in turn and that `usable` accepts.
pub fn random(rng: &mut Rng, length: usize, usable: impl Fn(&Op) -> bool) -> Vec<Step> {
    random_from(initial(0), rng, length, usable)
}

/// Like [`random`], from another tree. It must have the directory `/b`.
pub fn random_from(mut tree: Tree, rng: &mut Rng, length: usize, usable: impl Fn(&Op) -> bool) -> Vec<Step> {
    let ops: Vec<Op> = OPERATIONS.iter().copied().filter(usable).collect();
    let mut sequence = Vec::new();
    while sequence.len() < length {
        let is_common = tree.names.contains_key(COMMON) && rng.chance(25);
        let ops = if is_common { &IN_COMMON[..] } else { &ops[..] };
        let op = ops[below(rng, ops.len())];
        let nth = u8::try_from(sequence.len()).expect("few steps");
        if let Some(next) = tree.after(&op, content(0, nth)) {
            tree = next;
            sequence.push((op, persistence(rng)));
        }
    }
    sequence
}

fn persistence(rng: &mut Rng) -> Persist {
    const EMPTIED: [EmptiedLog; 3] = [EmptiedLog::Kept, EmptiedLog::Discarded, EmptiedLog::Zeroed];
    if rng.chance(8) {
        Persist::Parent
    } else if rng.chance(8) {
        Persist::Empty(EMPTIED[below(rng, EMPTIED.len())])
    } else {
        UNTIMED[below(rng, UNTIMED.len())]
    }
}

/// Makes some steps wait for a timed commit.
pub fn add_timed(steps: &mut [Step], rng: &mut Rng) {
    steps.iter_mut().filter(|_| rng.chance(25)).for_each(|step| step.1 = Persist::Timed);
}

fn below(rng: &mut Rng, limit: usize) -> usize {
    usize::try_from(rng.below(limit as u64)).expect("below a length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_every_operation_succeeds_alone() {
        let impossible = (0..count(1)).filter(|&index| sequence(1, index).is_none()).count();
        // Writes in three ways to the file that does not exist yet, and a short one.
        assert_eq!(impossible, 4 * PERSISTS.len());
        assert_eq!(random(&mut Rng::new(1, 0), 9, |_| true).len(), 9);
    }
}

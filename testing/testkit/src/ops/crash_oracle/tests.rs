//! Tests of the oracle: found trees that it accepts, and found trees that it refuses.

use super::*;
use crate::ops::file_model::FileModel;
use crate::ops::op::Step;

/// Bytes of a write, and of a range that is moved.
const PIECE: u64 = 2048;

const fn write(path: &'static str, offset: u64, len: u64, way: Way) -> Op {
    Op::File(path, FileOp::Write { way, offset, len })
}

const fn set_len(path: &'static str, size: u64) -> Op {
    Op::File(path, FileOp::SetLen { size })
}

/// Returns a tree with a file of four pieces and one of 100 bytes.
fn initial() -> Tree {
    let mut tree = Tree::default();
    for path in ["/a", "/b"] {
        tree.add(path, Kind::Directory, 0o755);
    }
    for (key, (path, len)) in [("/a/1", 4 * PIECE), ("/b/2", 100)].into_iter().enumerate() {
        tree.files.push(Arc::new(FileModel::of(Content::Pattern(90 + key as u64).bytes(0, len))));
        tree.add(path, Kind::File(key), 0o644);
    }
    tree
}

fn oracle(steps: &[Step]) -> Oracle {
    let mut oracle = Oracle::new(initial(), Zeros::PastTheEnd);
    (1..).zip(steps).for_each(|(nth, (op, _))| oracle.add(*op, Content::Byte(nth)));
    oracle
}

/// Returns the tree with other contents of a file.
fn with(tree: &Tree, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> Tree {
    let (mut tree, mut bytes) = (tree.clone(), tree.bytes(path).expect("it exists").to_vec());
    change(&mut bytes);
    let key = tree.file(path).expect("it exists");
    tree.files[key] = Arc::new(FileModel::of(bytes));
    tree
}

const WRITE: Op = write("/a/1", 0, PIECE, Way::Buffered);

fn steps(persist: Persist) -> Vec<Step> {
    vec![(Op::Rename("/a/1", "/a/2"), Persist::None), (Op::Create("/a/1"), Persist::None), (WRITE, persist)]
}

#[test]
fn names_are_those_of_one_point() {
    let steps = steps(Persist::None);
    let oracle = oracle(&steps);
    for tree in &oracle.trees {
        assert!(oracle.check(tree, &Durable::default(), 3).is_ok());
    }
    let second_only = initial().after(&Op::Create("/a/2"), Content::Byte(0)).expect("it is free");
    assert!(oracle.check(&second_only, &Durable::default(), 3).is_err());
    assert!(oracle.check(&oracle.trees[2], &Durable::default(), 1).is_err(), "it had not begun");
}

#[test]
fn what_was_synced_is_found() {
    let lost = |persist, found: usize| {
        let oracle = oracle(&steps(persist));
        oracle.check(&oracle.trees[found], &oracle.persisted(2, persist), 3).is_err()
    };
    assert!(!lost(Persist::None, 0));
    // A commit covers the names, and a sync of the range also the data.
    assert!(lost(Persist::Commit, 1) && !lost(Persist::Commit, 2));
    for persist in [Persist::All, Persist::Data, Persist::Range, Persist::Volume] {
        assert!(lost(persist, 1), "{persist:?}");
    }
}

#[test]
fn a_synced_range_needs_no_size_past_its_data() {
    let steps = [
        (set_len("/a/1", 0), Persist::Volume),
        (WRITE, Persist::None),
        (write("/a/1", 8192, PIECE, Way::Buffered), Persist::None),
        (Op::Chmod("/a/1"), Persist::Range),
    ];
    let oracle = oracle(&steps);
    let mut durable = oracle.all(1);
    durable.merge(&oracle.persisted(3, Persist::Range));
    let short = |len| with(&oracle.trees[4], "/a/1", |bytes| bytes.truncate(len));
    assert_eq!(oracle.check(&short(2048), &durable, 4).map(drop), Ok(()), "the rest of the range is a hole");
    assert!(oracle.check(&short(2047), &durable, 4).is_err());
}

#[test]
fn a_synced_range_needs_no_size_for_data_before_it() {
    let zero = FileOp::ZeroRange { offset: 7168, len: PIECE, keep_size: true };
    let steps = [
        (set_len("/a/1", 0), Persist::Volume),
        (WRITE, Persist::None),
        (Op::File("/a/1", zero), Persist::Range),
    ];
    let oracle = oracle(&steps);
    let mut durable = oracle.all(1);
    durable.merge(&oracle.persisted(2, Persist::Range));
    let found = with(&oracle.trees[3], "/a/1", Vec::clear);
    assert!(oracle.check(&found, &durable, 3).is_ok(), "the write was not synced");
}

#[test]
fn a_byte_that_was_never_written_is_noticed() {
    let oracle = oracle(&steps(Persist::None));
    let accepts = |oracle: &Oracle, change: fn(&mut Vec<u8>)| {
        oracle.check(&with(&oracle.trees[3], "/a/1", change), &Durable::default(), 3).is_ok()
    };
    assert!(accepts(&oracle, |bytes| bytes[..512].fill(0)), "zeros, as before the write");
    assert!(!accepts(&oracle, |bytes| bytes[..512].fill(0xa5)));
    assert!(!accepts(&oracle, |bytes| bytes[..256].fill(0)), "a part of a sector");
    let strict = Oracle { zeros: Zeros::Never, ..oracle };
    assert!(!accepts(&strict, |bytes| bytes[..512].fill(0)), "the file had no byte there");
}

/// Returns true if the oracle accepts the tree after all steps with the first sector of `path` as
/// it was before them.
fn accepts_old(steps: &[Step], durable: usize, path: &str) -> bool {
    let oracle = oracle(steps);
    let last = &oracle.trees[steps.len()];
    let key = last.file(path).expect("it exists");
    let mut old = oracle.trees[0].files[key].bytes().to_vec();
    let found = with(last, path, |bytes| {
        old.resize(bytes.len().max(SECTOR), 0);
        let end = bytes.len().min(SECTOR);
        bytes[..end].copy_from_slice(&old[..end]);
    });
    oracle.check(&found, &oracle.persisted(durable, steps[durable].1), steps.len()).is_ok()
}

#[test]
fn a_synced_range_before_a_collapse_or_an_insertion_is_found() {
    for op in [
        FileOp::CollapseRange { offset: PIECE, len: PIECE },
        FileOp::InsertRange { offset: PIECE, len: PIECE },
    ] {
        let steps = [(WRITE, Persist::Range), (Op::File("/a/1", op), Persist::None)];
        assert!(!accepts_old(&steps, 0, "/a/1") && accepts_old(&steps, 1, "/a/1"), "{op:?}");
    }
}

#[test]
fn a_rename_over_an_empty_file_finds_the_new_contents() {
    let write = (write("/b/2", 0, 100, Way::Buffered), Persist::None);
    let rename = (Op::Rename("/b/2", "/a/1"), Persist::None);
    let truncate = (set_len("/a/1", 0), Persist::None);
    assert!(accepts_old(&[write, (Op::Chmod("/b/2"), Persist::None)], 1, "/b/2"));
    assert!(!accepts_old(&[write, truncate, rename], 2, "/a/1"));
}

#[test]
fn a_commit_finds_direct_writes_before_it() {
    let commit = (Op::Chmod("/b/2"), Persist::Commit);
    let steps = |way| [(write("/b/2", 0, 512, way), Persist::None), commit];
    assert!(!accepts_old(&steps(Way::Direct), 1, "/b/2"));
    assert!(accepts_old(&steps(Way::Buffered), 1, "/b/2"));
}

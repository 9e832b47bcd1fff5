//! Random operations against a tree in memory.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{KINDS, Kind, make, names, new};
use parext4::{FileType, InodeRef, RenameMode, Volume};

/// Directories of the model: the root's `d0` to `d3`.
const DIRS: usize = 4;

#[derive(Clone, Debug)]
enum Op {
    Create(usize, u8),
    Mkdir(usize, u8),
    Symlink(usize, u8, u8),
    Link(usize, u8, usize, u8),
    Unlink(usize, u8),
    Rmdir(usize, u8),
    Rename(usize, u8, usize, u8, RenameMode),
    /// Many names at once, so that directories outgrow their block.
    Fill(usize),
    Sync,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let dir = || 0..DIRS;
    let name = || 0_u8..12;
    let mode =
        prop_oneof![Just(RenameMode::Replace), Just(RenameMode::NoReplace), Just(RenameMode::Exchange)];
    prop_oneof![
        4 => (dir(), name()).prop_map(|(d, n)| Op::Create(d, n)),
        3 => (dir(), name()).prop_map(|(d, n)| Op::Mkdir(d, n)),
        2 => (dir(), name(), name()).prop_map(|(d, n, t)| Op::Symlink(d, n, t)),
        3 => (dir(), name(), dir(), name()).prop_map(|(d, n, e, m)| Op::Link(d, n, e, m)),
        4 => (dir(), name()).prop_map(|(d, n)| Op::Unlink(d, n)),
        3 => (dir(), name()).prop_map(|(d, n)| Op::Rmdir(d, n)),
        8 => (dir(), name(), dir(), name(), mode).prop_map(|(d, n, e, m, r)| Op::Rename(d, n, e, m, r)),
        1 => dir().prop_map(Op::Fill),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

/// Returns a name of up to 255 bytes. Names differ in their first bytes.
fn name(n: u8) -> Vec<u8> {
    let mut name = vec![b'a' + n];
    name.resize(1 + usize::from(n) * 254 / 11, b'.');
    name
}

/// The meaning of a name: a number for each inode made, and its type.
type Entry = (u32, FileType);

#[derive(Default)]
struct Model {
    dirs: [BTreeMap<Vec<u8>, Entry>; DIRS],
    made: u32,
}

impl Model {
    fn add(&mut self, dir: usize, name: Vec<u8>, file_type: FileType) -> bool {
        self.made += 1;
        let free = !self.dirs[dir].contains_key(&name);
        if free {
            self.dirs[dir].insert(name, (self.made, file_type));
        }
        free
    }

    fn remove(&mut self, dir: usize, name: &[u8], directory: bool) -> bool {
        let fits = |entry: &Entry| (entry.1 == FileType::Directory) == directory;
        let there = self.dirs[dir].get(name).is_some_and(fits);
        if there {
            self.dirs[dir].remove(name);
        }
        there
    }

    fn link(&mut self, dir: usize, name: Vec<u8>, target: Option<Entry>) -> bool {
        let Some(target) = target.filter(|target| target.1 != FileType::Directory) else { return false };
        let free = !self.dirs[dir].contains_key(&name);
        if free {
            self.dirs[dir].insert(name, target);
        }
        free
    }

    fn rename(&mut self, old: (usize, &[u8]), new: (usize, &[u8]), mode: RenameMode) -> bool {
        let Some(moved) = self.dirs[old.0].get(old.1).copied() else { return false };
        let victim = self.dirs[new.0].get(new.1).copied();
        let is_dir = |entry: Entry| entry.1 == FileType::Directory;
        match (mode, victim) {
            (RenameMode::NoReplace, Some(_)) | (RenameMode::Exchange, None) => return false,
            (_, Some(victim)) if victim.0 == moved.0 => return true,
            (RenameMode::Exchange, Some(victim)) => {
                self.dirs[new.0].insert(new.1.to_vec(), moved);
                self.dirs[old.0].insert(old.1.to_vec(), victim);
                return true;
            }
            // The model's directories below the first level are empty.
            (_, Some(victim)) if is_dir(victim) != is_dir(moved) => return false,
            _ => {}
        }
        self.dirs[old.0].remove(old.1);
        self.dirs[new.0].insert(new.1.to_vec(), moved);
        true
    }
}

fn dirs(volume: &Volume) -> [InodeRef; DIRS] {
    std::array::from_fn(|n| volume.resolve(format!("/d{n}")).unwrap())
}

/// Runs one operation on both. Returns whether each of them succeeded.
fn apply(model: &mut Model, at: &[InodeRef; DIRS], op: &Op) -> (bool, bool) {
    match *op {
        Op::Create(d, n) => {
            (at[d].create(&name(n), &new()).is_ok(), model.add(d, name(n), FileType::Regular))
        }
        Op::Mkdir(d, n) => {
            (at[d].mkdir(&name(n), &new()).is_ok(), model.add(d, name(n), FileType::Directory))
        }
        Op::Symlink(d, n, target) => {
            let made = at[d].symlink(&name(n), &name(target), &new()).is_ok();
            (made, model.add(d, name(n), FileType::Symlink))
        }
        Op::Link(d, n, e, m) => {
            let done = at[d].lookup(&name(n)).is_ok_and(|node| at[e].link(&name(m), &node).is_ok());
            let target = model.dirs[d].get(&name(n)).copied();
            (done, model.link(e, name(m), target))
        }
        Op::Unlink(d, n) => (at[d].unlink(&name(n)).is_ok(), model.remove(d, &name(n), false)),
        Op::Rmdir(d, n) => (at[d].rmdir(&name(n)).is_ok(), model.remove(d, &name(n), true)),
        Op::Rename(d, n, e, m, mode) => {
            let done = at[d].rename(&name(n), &at[e], &name(m), mode).is_ok();
            (done, model.rename((d, &name(n)), (e, &name(m)), mode))
        }
        Op::Fill(d) => {
            for n in 0..40 {
                let name = format!("fill-{n:0>30}").into_bytes();
                let made = at[d].create(&name, &new()).is_ok();
                assert_eq!(made, model.add(d, name, FileType::Regular));
            }
            (true, true)
        }
        Op::Sync | Op::Reopen => (true, true),
    }
}

fn compare(model: &Model, at: &[InodeRef; DIRS]) {
    for (dir, node) in model.dirs.iter().zip(at) {
        assert!(names(node).iter().eq(dir.keys()));
        let subdirs = dir.values().filter(|entry| entry.1 == FileType::Directory).count();
        assert_eq!(usize::from(node.metadata().links), 2 + subdirs);
        for (name, entry) in dir {
            let found = node.lookup(name).unwrap();
            assert_eq!(found.file_type(), entry.1);
            if entry.1 != FileType::Directory {
                let links =
                    model.dirs.iter().flat_map(BTreeMap::values).filter(|other| other.0 == entry.0).count();
                assert_eq!(usize::from(found.metadata().links), links);
            }
        }
    }
}

fn run(kind: &Kind, ops: &[Op]) {
    let Some(image) = make(8, kind) else { return };
    let mut volume = image.open();
    for n in 0..DIRS {
        volume.create_dir(format!("/d{n}"), 0o755).unwrap();
    }
    let mut at = dirs(&volume);
    let mut model = Model::default();
    for op in ops {
        let (done, expected) = apply(&mut model, &at, op);
        assert_eq!(done, expected, "{op:?}");
        match op {
            Op::Sync => volume.sync().unwrap(),
            Op::Reopen => {
                drop(at);
                volume.close().unwrap();
                volume = image.open();
                at = dirs(&volume);
                compare(&model, &at);
            }
            _ => {}
        }
    }
    compare(&model, &at);
    drop(at);
    volume.close().unwrap();
    image.fsck();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_behaves_like_its_model(
        kind in 0..KINDS.len(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        run(&KINDS[kind], &ops);
    }
}

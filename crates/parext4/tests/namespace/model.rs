//! Random operations against the tree that they make.

use std::array::from_fn;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;

use super::{KINDS, Kind, make, names};
use parext4::{FileType, Volume};
use testkit::ops::tree::Kind as InodeKind;
use testkit::ops::{Content, Op, Runner, Tree, read_tree};

const DIRS: &[&str] = &["/d0", "/d1", "/d2", "/d3"];

/// Names of up to 255 bytes. They differ in their first bytes.
static NAMES: LazyLock<[String; 12]> = LazyLock::new(|| {
    from_fn(|n| format!("{}{}", char::from(b'a' + u8::try_from(n).unwrap()), ".".repeat(n * 254 / 11)))
});
/// Each name in each directory.
static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
    DIRS.iter().flat_map(|dir| NAMES.iter().map(move |name| format!("{dir}/{name}"))).collect()
});
/// For each directory, more names than fit one block.
static FILL: LazyLock<[Vec<String>; 4]> =
    LazyLock::new(|| from_fn(|dir| (0..40).map(|n| format!("{}/fill-{n:0>30}", DIRS[dir])).collect()));

#[derive(Clone, Debug)]
enum Step {
    Run(Op),
    /// Creates many names.
    Fill(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let path = || (0..PATHS.len()).prop_map(|nth| PATHS[nth].as_str());
    let target = select(NAMES.each_ref().map(String::as_str).to_vec());
    // Now and then a name is renamed to itself.
    let other = prop_oneof![9 => path().prop_map(Some), 1 => Just(None)];
    let rename = select(vec![Op::Rename, Op::RenameNew, Op::Exchange]);
    let op = prop_oneof![
        4 => path().prop_map(Op::Create),
        3 => path().prop_map(Op::MakeDir),
        2 => (path(), target).prop_map(|(path, target)| Op::Symlink(path, target)),
        3 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        4 => path().prop_map(Op::Unlink),
        3 => path().prop_map(Op::RemoveDir),
        8 => (path(), other, rename).prop_map(|(from, to, rename)| rename(from, to.unwrap_or(from))),
        1 => Just(Op::SyncVolume),
    ];
    prop_oneof![
        28 => op.prop_map(Step::Run),
        1 => (0..DIRS.len()).prop_map(Step::Fill),
        1 => Just(Step::Reopen),
    ]
}

/// Runs an operation, which succeeds if the tree says so. The tree follows it.
fn apply(volume: &Volume, tree: &mut Tree, op: &Op) {
    let content = Content::Byte(0);
    let next = tree.after(op, content);
    let done = Runner::new(volume).run(op, content);
    assert_eq!(done.is_ok(), next.is_some(), "{op:?}: {done:?}");
    *tree = next.unwrap_or_else(|| std::mem::take(tree));
}

fn compare(volume: &Volume, tree: &Tree) {
    let same = read_tree(volume, "").and_then(|found| tree.compare(&found));
    assert_eq!(same, Ok(()));
    for dir in DIRS {
        let expected = tree.children(dir);
        let expected = expected.iter().map(|(path, _)| &path.as_bytes()[dir.len() + 1..]);
        assert!(names(&volume.resolve(dir).unwrap()).iter().map(Vec::as_slice).eq(expected));
    }
    for (path, entry) in &tree.names {
        let found = volume.symlink_metadata(path).unwrap();
        let (file_type, links) = match &entry.kind {
            InodeKind::Directory => {
                let is_dir = |child: &&(&str, &InodeKind)| *child.1 == InodeKind::Directory;
                (FileType::Directory, 2 + tree.children(path).iter().filter(is_dir).count())
            }
            InodeKind::Symlink { .. } => (FileType::Symlink, links(tree, &entry.kind)),
            InodeKind::File(_) => (FileType::Regular, links(tree, &entry.kind)),
        };
        assert_eq!((found.file_type, usize::from(found.links)), (file_type, links), "{path}");
    }
}

/// Returns the number of names of a file or symbolic link.
fn links(tree: &Tree, kind: &InodeKind) -> usize {
    tree.names.values().filter(|entry| entry.kind == *kind).count()
}

fn run(kind: &Kind, steps: &[Step]) {
    let Some(image) = make(8, kind) else { return };
    let mut volume = image.open();
    let mut tree = Tree::default();
    for dir in DIRS {
        apply(&volume, &mut tree, &Op::MakeDir(dir));
    }
    for step in steps {
        match step {
            Step::Run(op) => apply(&volume, &mut tree, op),
            Step::Fill(dir) => {
                FILL[*dir].iter().for_each(|path| apply(&volume, &mut tree, &Op::Create(path)));
            }
            Step::Reopen => {
                volume.close().unwrap();
                volume = image.open();
                compare(&volume, &tree);
            }
        }
    }
    compare(&volume, &tree);
    volume.close().unwrap();
    image.fsck();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_behaves_like_its_model(
        kind in 0..KINDS.len(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(&KINDS[kind], &steps);
    }
}

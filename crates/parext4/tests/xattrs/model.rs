//! Random changes against the tree that they make.

use std::array::from_fn;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;

use super::{Image, KINDS, VALUE_KINDS};
use parext4::{Error, Volume, XattrMode};
use testkit::ops::{Content, Op, Runner, Tree, read_tree};

const FILES: &[&str] = &["/0", "/1"];

/// Names of all kinds and lengths.
static NAMES: LazyLock<[String; 10]> = LazyLock::new(|| {
    from_fn(|n| {
        let letter = char::from(b'a' + u8::try_from(n).unwrap());
        let prefix = ["user.", "trusted.", "security."][n % 3];
        format!("{prefix}{}", letter.to_string().repeat(1 + n * 9))
    })
});

#[derive(Clone, Debug)]
enum Step {
    Run(Op, Content),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || (0..NAMES.len()).prop_map(|n| NAMES[n].as_str());
    let mode =
        prop_oneof![4 => Just(XattrMode::Any), 1 => Just(XattrMode::Create), 1 => Just(XattrMode::Replace)];
    let len = prop_oneof![4 => 0_usize..60, 2 => 0_usize..400, 1 => 0_usize..5000];
    let set = (select(FILES), name(), len, mode).prop_map(|(path, name, len, mode)| Op::SetXattr {
        path,
        name,
        len,
        mode,
    });
    let remove = (select(FILES), name()).prop_map(|(path, name)| Op::RemoveXattr { path, name });
    let op = prop_oneof![12 => set, 4 => remove, 1 => Just(Op::SyncVolume)];
    let content = prop_oneof![
        any::<u8>().prop_map(Content::Byte),
        any::<u8>().prop_map(|number| Content::Pattern(number.into())),
    ];
    prop_oneof![17 => (op, content).prop_map(|(op, content)| Step::Run(op, content)), 1 => Just(Step::Reopen)]
}

/// Runs an operation, and returns the tree after it.
fn run(volume: &Volume, tree: Tree, op: &Op, content: Content) -> Tree {
    let next = tree.after(op, content);
    match (Runner::new(volume).run(op, content), next, *op) {
        (Ok(()), Some(next), _) => next,
        (Err(Error::Exists(_)), None, Op::SetXattr { mode: XattrMode::Create, .. })
        | (
            Err(Error::NoAttribute(_)),
            None,
            Op::SetXattr { mode: XattrMode::Replace, .. } | Op::RemoveXattr { .. },
        ) => tree,
        (Err(Error::NoSpace), Some(_), Op::SetXattr { path, name, len, .. }) => {
            // A set of attributes that fits one block alone is never refused.
            let space = |name: usize, value: usize| 16 + 3 + name + 3 + value;
            let others = tree.names[path].attributes.xattrs.iter();
            let others: usize = others.map(|(name, value)| space(name.len(), value.len())).sum();
            assert!(others + space(name.len(), len) + 36 > volume.info().block_size as usize);
            tree
        }
        (result, next, _) => panic!("{op:?}: {result:?}, with the tree {next:?}"),
    }
}

fn compare(volume: &Volume, tree: &Tree) {
    let same = read_tree(volume, "").and_then(|found| tree.compare(&found));
    assert_eq!(same, Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 36, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attributes_behave_like_a_map(
        kind in 0..KINDS.len() + VALUE_KINDS.len(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let Some(image) = Image::mke2fs(8, KINDS.iter().chain(&VALUE_KINDS).nth(kind).unwrap()) else { return Ok(()) };
        let mut volume = image.open();
        let mut tree = Tree::default();
        for path in FILES {
            tree = run(&volume, tree, &Op::Create(path), Content::Byte(0));
        }
        for step in &steps {
            match step {
                Step::Run(op, content) => tree = run(&volume, tree, op, *content),
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
}

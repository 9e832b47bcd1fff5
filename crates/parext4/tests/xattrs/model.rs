//! Random changes against a map in memory.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Image, KINDS, VALUE_KINDS, file};
use parext4::{Error, Volume, XattrMode};

/// Files of the model.
const FILES: usize = 2;

#[derive(Clone, Debug)]
enum Op {
    Set(usize, u8, u16, u8, XattrMode),
    Remove(usize, u8),
    Sync,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let mode =
        prop_oneof![4 => Just(XattrMode::Any), 1 => Just(XattrMode::Create), 1 => Just(XattrMode::Replace)];
    let len = prop_oneof![4 => 0_u16..60, 2 => 0_u16..400, 1 => 0_u16..5000];
    let set = (0..FILES, 0_u8..10, len, any::<u8>(), mode).prop_map(|(f, n, l, v, m)| Op::Set(f, n, l, v, m));
    prop_oneof![
        12 => set,
        4 => (0..FILES, 0_u8..10).prop_map(|(f, n)| Op::Remove(f, n)),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

/// Names of all kinds and lengths.
fn name(n: u8) -> Vec<u8> {
    let prefix: &[u8] = [&b"user."[..], b"trusted.", b"security."][usize::from(n % 3)];
    [prefix, &vec![b'a' + n; 1 + usize::from(n) * 9][..]].concat()
}

type Model = [BTreeMap<Vec<u8>, Vec<u8>>; FILES];

fn apply(model: &mut Model, volume: &Volume, op: &Op) {
    match *op {
        Op::Set(f, n, len, value, mode) => {
            let (name, value) = (name(n), vec![value; len.into()]);
            let node = volume.resolve(format!("/{f}")).unwrap();
            let there = model[f].contains_key(&name);
            match (node.set_xattr(&name, &value, mode), mode) {
                (Ok(()), XattrMode::Create) => assert!(!there),
                (Ok(()), XattrMode::Replace) => assert!(there),
                (Ok(()), _) => {}
                (Err(Error::Exists(_)), XattrMode::Create) => return assert!(there),
                (Err(Error::NoAttribute(_)), XattrMode::Replace) => return assert!(!there),
                (Err(Error::NoSpace), _) => {
                    // A set of attributes that fits one block alone is never refused.
                    let others: usize =
                        model[f].iter().map(|(name, value)| 16 + 3 + name.len() + 3 + value.len()).sum();
                    let size = others + 16 + 3 + name.len() + 3 + value.len() + 36;
                    return assert!(size > volume.info().block_size as usize);
                }
                (Err(error), _) => panic!("{error}"),
            }
            model[f].insert(name, value);
        }
        Op::Remove(f, n) => {
            let node = volume.resolve(format!("/{f}")).unwrap();
            let removed = node.remove_xattr(&name(n)).is_ok();
            assert_eq!(removed, model[f].remove(&name(n)).is_some());
        }
        Op::Sync => volume.sync().unwrap(),
        Op::Reopen => {}
    }
}

fn compare(model: &Model, volume: &Volume) {
    for (f, attributes) in model.iter().enumerate() {
        let node = volume.resolve(format!("/{f}")).unwrap();
        let found: BTreeMap<_, _> = node
            .list_xattr()
            .unwrap()
            .into_iter()
            .map(|name| {
                let value = node.get_xattr(&name).unwrap().unwrap();
                (name, value)
            })
            .collect();
        assert_eq!(&found, attributes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 36, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attributes_behave_like_a_map(
        kind in 0..KINDS.len() + VALUE_KINDS.len(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let Some(image) = Image::mke2fs(8, KINDS.iter().chain(&VALUE_KINDS).nth(kind).unwrap()) else { return Ok(()) };
        let mut volume = image.open();
        for f in 0..FILES {
            file(&volume, &f.to_string());
        }
        let mut model = Model::default();
        for op in &ops {
            apply(&mut model, &volume, op);
            if matches!(op, Op::Reopen) {
                volume.close().unwrap();
                volume = image.open();
                compare(&model, &volume);
            }
        }
        compare(&model, &volume);
        volume.close().unwrap();
        image.fsck();
    }
}

//! The map against a model: random changes, then the same mapping read back from the device.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{ExtentMap, State};
use crate::sync::Arc;
use crate::{InodeNo, MemDevice, MkfsOptions, OpenOptions, Volume, mkfs};

#[derive(Clone, Debug)]
enum Change {
    Add(u32, u32),
    Convert(u32, u32),
    Cut(u32),
    Commit,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        8 => (0_u32..3000, 1_u32..12).prop_map(|(at, len)| Change::Add(at, len)),
        8 => (0_u32..3000, 1_u32..12).prop_map(|(at, len)| Change::Convert(at, len)),
        1 => (0_u32..4000).prop_map(Change::Cut),
        1 => Just(Change::Commit),
    ];
    prop::collection::vec(change, 1..400)
}

/// What the map says of each block: absent, unwritten or written, and where.
fn flatten(map: &ExtentMap) -> BTreeMap<u32, (bool, u64)> {
    let mut blocks = BTreeMap::new();
    for run in map.runs(0, 4096) {
        let (written, start) = match run.state {
            State::Hole => continue,
            State::Unwritten(start) => (false, start),
            State::Written(start) => (true, start),
        };
        for nth in 0..run.len {
            blocks.insert(run.logical.get() + nth, (written, start.get() + u64::from(nth)));
        }
    }
    blocks
}

fn apply(volume: &Volume, model: &mut BTreeMap<u32, bool>, change: &Change) {
    let inner = &volume.inner;
    let file = inner.inode(InodeNo(12)).unwrap();
    let credits = inner.map_credits(&file).unwrap();
    match *change {
        Change::Add(at, len) => {
            let mut done = 0;
            while done < len {
                done += inner
                    .transact(credits, |handle| inner.add_blocks(handle, &file, at + done, len - done, false))
                    .unwrap();
            }
            for block in at..at + len {
                model.entry(block).or_insert(false);
            }
        }
        Change::Convert(at, len) => {
            let mut reservation = inner.allocator.reserve(40).unwrap();
            let mut done = 0;
            while done < len {
                let (start, rest) = (at + done, len - done);
                done += inner
                    .transact(credits, |handle| inner.convert(handle, &file, start, rest, &mut reservation))
                    .unwrap();
            }
            for (_, written) in model.range_mut(at..at + len) {
                *written = true;
            }
        }
        Change::Cut(from) => {
            inner.free_blocks_from(&file, from).unwrap();
            model.split_off(&from);
        }
        Change::Commit => volume.sync().unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_map_agrees_with_a_model_and_with_the_device(changes in changes()) {
        let device = Arc::new(MemDevice::new(32 << 20));
        mkfs(&*device, &MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() }).unwrap();
        let volume = Volume::open(device.clone(), &OpenOptions::default()).unwrap();
        let root = volume.root().unwrap();
        let node = root.create(b"file", &crate::NewInode::default()).unwrap();
        prop_assert_eq!(node.ino(), InodeNo(12));
        let mut model = BTreeMap::new();
        for change in &changes {
            apply(&volume, &mut model, change);
        }
        let in_memory = flatten(&volume.inner.map(&node.inode).unwrap().read());
        let states: BTreeMap<u32, bool> = in_memory.iter().map(|(&at, &(written, _))| (at, written)).collect();
        prop_assert_eq!(&states, &model);
        let mut places: Vec<u64> = in_memory.values().map(|&(_, place)| place).collect();
        places.sort_unstable();
        places.dedup();
        prop_assert_eq!(places.len(), in_memory.len(), "no block is mapped twice");
        drop((root, node));
        volume.close().unwrap();

        let volume = Volume::open(device, &OpenOptions::read_only()).unwrap();
        let file = volume.inner.inode(InodeNo(12)).unwrap();
        prop_assert_eq!(flatten(&volume.inner.map(&file).unwrap().read()), in_memory);
    }
}

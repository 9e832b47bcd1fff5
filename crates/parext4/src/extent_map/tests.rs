//! Tests of the map against a model: random changes, then a comparison with the tree read back from
//! the device.

use std::collections::BTreeMap;

use parext4_format::extent::{self, Extent};
use parext4_format::{BlockRange, FileBlock, FsBlock};
use proptest::prelude::*;

use super::ExtentMap;
use super::region::Region;
use crate::allocator::Reservation;
use crate::block_map::BlockMap;
use crate::inode::Inode;
use crate::journal::Handle;
use crate::layout::Layout;
use crate::map_update::CUT_BLOCKS;
use crate::mapping::{BlockState, Mapping, Shift};
use crate::meta::BlockKind;
use crate::meta::MetaCache;
use crate::sync::Arc;
use crate::{Credentials, Error, InodeNo, InodeRef, MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};

#[derive(Clone, Debug)]
enum Change {
    Add(u32, u32),
    Convert(u32, u32),
    /// Like [`Change::Convert`], for an extent that was split at both ends before, without any
    /// reserved block.
    ConvertCut(u32, u32),
    /// Converts written blocks to unwritten ones.
    Zero(u32, u32),
    Cut(u32),
    /// Removes a range, or inserts one.
    Collapse(u32, u32),
    Insert(u32, u32),
    Commit,
}

/// The largest file block that a change may touch, and a margin.
const SPAN: u32 = 16 << 10;

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        8 => (0_u32..3000, 1_u32..12).prop_map(|(at, len)| Change::Add(at, len)),
        1 => (0_u32..2000, 100_u32..2000).prop_map(|(at, len)| Change::Add(at, len)),
        8 => (0_u32..3000, 1_u32..12).prop_map(|(at, len)| Change::Convert(at, len)),
        1 => (0_u32..2000, 100_u32..1000).prop_map(|(at, len)| Change::Convert(at, len)),
        2 => (0_u32..2000, 1_u32..2000).prop_map(|(at, len)| Change::ConvertCut(at, len)),
        1 => (0_u32..2000, 1_u32..1000).prop_map(|(at, len)| Change::Zero(at, len)),
        1 => (0_u32..4000).prop_map(Change::Cut),
        1 => (0_u32..3000, 1_u32..30).prop_map(|(at, len)| Change::Collapse(at, len)),
        1 => (0_u32..3000, 1_u32..30).prop_map(|(at, len)| Change::Insert(at, len)),
        1 => Just(Change::Commit),
    ];
    prop::collection::vec(change, 1..400)
}

/// Returns the map of a file.
fn map_of<'a>(volume: &Volume, file: &'a Inode) -> &'a ExtentMap {
    let BlockMap::Extents(map) = volume.engine.block_map(file).unwrap() else { panic!("a tree of extents") };
    map
}

fn blocks(at: u32, len: u32) -> BlockRange {
    BlockRange::with_len(FileBlock(at), len).unwrap()
}

/// Returns the state and the place of each block according to the map.
fn flatten(map: &ExtentMap) -> BTreeMap<u32, (bool, u64)> {
    let mut found = BTreeMap::new();
    for run in map.runs(blocks(0, SPAN)) {
        let (written, start) = match run.state {
            BlockState::Hole => continue,
            BlockState::Unwritten(start) => (false, start),
            BlockState::Written(start) => (true, start),
        };
        for nth in 0..run.len {
            found.insert(run.logical.get() + nth, (written, start.get() + u64::from(nth)));
        }
    }
    found
}

fn apply(volume: &Volume, model: &mut BTreeMap<u32, bool>, change: &Change) {
    let inner = &volume.engine;
    let file = inner.inode(InodeNo(12)).unwrap();
    let credits = inner.map_credits(&file).unwrap();
    match *change {
        Change::Add(at, len) => {
            let mut done = 0;
            while done < len {
                done += inner
                    .transact(credits, |handle| {
                        let blocks = blocks(at + done, len - done);
                        inner.add_blocks(handle, &file, blocks, false, Credentials::root())
                    })
                    .unwrap();
            }
            for block in at..at + len {
                model.entry(block).or_insert(false);
            }
        }
        Change::Convert(at, len) => {
            let most = ExtentMap::worst_case(map_of(volume, &file).depth());
            let mut reservation = inner.allocator().reserve(most).unwrap();
            convert(volume, &file, at, len, &mut reservation);
            for (_, written) in model.range_mut(at..at + len) {
                *written = true;
            }
        }
        Change::ConvertCut(at, len) => {
            let block_map = inner.block_map(&file).unwrap();
            let runs: Vec<_> =
                block_map.runs(blocks(at, len)).map(Result::unwrap).filter(Mapping::is_unwritten).collect();
            for run in &runs {
                block_map.lock().pin(run);
                let split = |handle: &Handle<'_>| inner.split_at_edges(handle, &file, run.blocks());
                inner.transact(2 * credits, split).unwrap();
            }
            let all = claim_all(volume);
            let mut none = inner.allocator().reserve(0).unwrap();
            for run in &runs {
                let (start, end) = (run.logical.get(), run.logical.get() + run.len);
                convert(volume, &file, start, run.len, &mut none);
                block_map.lock().unpin(run);
                model.range_mut(start..end).for_each(|(_, written)| *written = true);
            }
            drop(all);
        }
        Change::Zero(at, len) => {
            let mut done = 0;
            while done < len {
                let (start, rest) = (at + done, len - done);
                let make_unwritten =
                    |handle: &Handle<'_>| inner.make_unwritten(handle, &file, blocks(start, rest));
                done += inner.transact(credits, make_unwritten).unwrap();
            }
            for (_, written) in model.range_mut(at..at + len) {
                *written = false;
            }
        }
        Change::Cut(from) => {
            inner.free_tail(&file, BlockRange::starting_at(FileBlock(from))).unwrap();
            model.split_off(&from);
        }
        Change::Collapse(at, len) => {
            let remove = |handle: &Handle<'_>| inner.remove_range(handle, &file, blocks(at, len));
            while !inner.transact(credits, remove).unwrap() {}
            shift(volume, &file, Shift::down(u64::from(at + len), len));
            model.retain(|&block, _| !(at..at + len).contains(&block));
            let behind = model.split_off(&at);
            model.extend(behind.into_iter().map(|(block, written)| (block - len, written)));
        }
        Change::Insert(at, len) => {
            shift(volume, &file, Shift::up(FileBlock(at), len));
            let behind = model.split_off(&at);
            model.extend(behind.into_iter().map(|(block, written)| (block + len, written)));
        }
        Change::Commit => volume.sync().unwrap(),
    }
}

/// Reserves all free blocks, so that no further reservation succeeds.
fn claim_all(volume: &Volume) -> Vec<Reservation<'_>> {
    let (mut all, mut blocks) = (Vec::new(), 1 << 16);
    while blocks > 0 {
        match volume.engine.allocator().reserve(blocks) {
            Ok(some) => all.push(some),
            Err(_) => blocks /= 2,
        }
    }
    all
}

fn convert(volume: &Volume, file: &Arc<Inode>, at: u32, len: u32, reservation: &mut Reservation<'_>) {
    let inner = &volume.engine;
    let mut done = 0;
    while done < len {
        let credits = inner.map_credits(file).unwrap();
        let some = |handle: &Handle<'_>| {
            inner.convert(handle, file, blocks(at + done, len - done), &mut *reservation)
        };
        done += inner.transact(credits, some).unwrap();
    }
}

fn shift(volume: &Volume, file: &Arc<Inode>, mut shift: Shift) {
    let inner = &volume.engine;
    let mut reservation = inner.allocator().reserve(CUT_BLOCKS).unwrap();
    let mut step = || {
        let credits = inner.map_credits(file).unwrap();
        inner.transact(credits, |handle| inner.shift(handle, file, &mut shift, &mut reservation)).unwrap()
    };
    while !step() {}
}

/// Returns a new volume with blocks of 1 KiB.
fn make() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(32 << 20));
    let options = MkfsOptions::new().block_size(1024).device_is_zero(true);
    mkfs(&*device, &options).unwrap();
    device
}

fn open(device: &Arc<MemDevice>) -> Volume {
    let options = VolumeOptions::new().commit_interval(None);
    Volume::open_device(Arc::clone(device) as Arc<dyn crate::Device>, &options).unwrap()
}

/// Returns a new file whose tree has at most `capacity` entries in a node.
fn create(volume: &Volume, capacity: usize) -> InodeRef {
    let node = volume.root().unwrap().create(b"file", &crate::NewInode::new()).unwrap();
    assert_eq!(node.ino(), InodeNo(12));
    map_of(volume, &node.inode).lock().set_capacity(capacity);
    node
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn the_map_agrees_with_a_model_and_with_the_device(
        changes in changes(),
        capacity in prop_oneof![Just(8_usize), Just(84)],
    ) {
        let device = make();
        let volume = open(&device);
        let node = create(&volume, capacity);
        let mut model = BTreeMap::new();
        for change in &changes {
            apply(&volume, &mut model, change);
            let map = map_of(&volume, &node.inode);
            map.check_view();
            let mapped: u32 = map.runs(blocks(0, SPAN)).filter(|run| run.state != BlockState::Hole).map(|run| run.len).sum();
            prop_assert_eq!(mapped as usize, model.len());
        }
        let in_memory = flatten(map_of(&volume, &node.inode));
        let states: BTreeMap<u32, bool> = in_memory.iter().map(|(&at, &(written, _))| (at, written)).collect();
        prop_assert_eq!(&states, &model);
        let mut places: Vec<u64> = in_memory.values().map(|&(_, place)| place).collect();
        places.sort_unstable();
        places.dedup();
        prop_assert_eq!(places.len(), in_memory.len(), "no block is mapped twice");
        drop(node);
        volume.close().unwrap();

        let volume = Volume::open_device(device, &VolumeOptions::new().read_only(true)).unwrap();
        let file = volume.engine.inode(InodeNo(12)).unwrap();
        prop_assert_eq!(flatten(map_of(&volume, &file)), in_memory);
    }
}

fn add(volume: &Volume, node: &InodeRef, blocks: BlockRange, written: bool) {
    let inner = &volume.engine;
    let add =
        |handle: &Handle<'_>| inner.add_blocks(handle, &node.inode, blocks, written, Credentials::root());
    inner.transact(50, add).unwrap();
}

/// Maps every second block of the file, so that no two extents join.
fn scatter(volume: &Volume, node: &InodeRef, nth: std::ops::Range<u32>) -> crate::Result<()> {
    let inner = &volume.engine;
    for nth in nth {
        let credits = inner.map_credits(&node.inode)?;
        inner.transact(credits, |handle| {
            inner.add_blocks(handle, &node.inode, blocks(2 * nth, 1), false, Credentials::root())
        })?;
    }
    Ok(())
}

#[test]
fn a_tree_of_the_greatest_depth_refuses_more_and_stays_as_it_was() {
    let device = make();
    let volume = open(&device);
    // With nodes this small the tree soon reaches the maximum depth.
    let node = create(&volume, 3);
    let error = scatter(&volume, &node, 0..3000).unwrap_err();
    assert!(matches!(error, Error::FileTooLarge), "{error}");
    let before = {
        let map = map_of(&volume, &node.inode);
        assert_eq!((map.depth(), map.lock().root_len()), (super::MAX_DEPTH, super::ROOT_CAPACITY));
        flatten(map)
    };
    let free = volume.engine.counts().free_blocks();

    assert!(scatter(&volume, &node, 2000..2001).is_err());
    assert_eq!(volume.engine.counts().free_blocks(), free, "the failed change released its blocks");
    volume.sync().unwrap();
    drop(node);
    volume.close().unwrap();
    let volume = open(&device);
    let file = volume.engine.inode(InodeNo(12)).unwrap();
    assert_eq!(flatten(map_of(&volume, &file)), before);
    volume.engine.free_tail(&file, BlockRange::ALL).unwrap();
}

/// The extent to split is in a full leaf, with an extent after it, and all nodes above are full.
#[test]
fn an_insertion_that_the_tree_has_no_room_for_changes_nothing() {
    let device = make();
    let volume = open(&device);
    let node = create(&volume, 3);
    let (inner, mut extents) = (&volume.engine, 0);
    let add = |nth: u32| {
        inner.transact(inner.map_credits(&node.inode)?, |handle| {
            inner.add_blocks(handle, &node.inode, blocks(3 * nth, 2), false, Credentials::root())
        })
    };
    while add(extents).is_ok() {
        extents += 1;
    }
    let map = map_of(&volume, &node.inode);
    assert_eq!((map.depth(), map.lock().root_len()), (super::MAX_DEPTH, super::ROOT_CAPACITY));
    let file = volume.open_direct("/file", &crate::OpenOptions::read_write()).unwrap();
    file.set_len(u64::from(3 * extents) * 1024).unwrap();
    let before = (flatten(map), file.size());
    let at = u64::from(3 * (extents - 2) + 1) * 1024;
    let inserted = file.insert_range(at..at + 1024);
    assert!(matches!(inserted, Err(Error::FileTooLarge)), "{inserted:?}");
    assert!((flatten(map), file.size()) == before, "moved");
    assert!(volume.stopped().is_none());
}

#[test]
fn one_handle_converts_many_pieces() {
    let device = make();
    let volume = open(&device);
    let node = create(&volume, 84);
    scatter(&volume, &node, 0..1000).unwrap();
    let inner = &volume.engine;
    let mut reservation = inner.allocator().reserve(ExtentMap::worst_case(2)).unwrap();
    let credits = inner.conversion_credits(&node.inode, 1000).unwrap();
    assert!(credits < inner.journal().max_credits());
    let done = inner
        .transact(credits, |handle| inner.convert(handle, &node.inode, blocks(0, 2000), &mut reservation));
    assert_eq!(done.unwrap(), 2000);
    assert!(flatten(map_of(&volume, &node.inode)).values().all(|&(written, _)| written));
}

#[test]
fn converting_in_order_leaves_one_extent() {
    let device = make();
    let volume = open(&device);
    let node = create(&volume, 84);
    let inner = &volume.engine;
    add(&volume, &node, blocks(0, 1000), false);
    for at in (0..1000).step_by(10) {
        // The conversion needs no block then, so none is reserved.
        let mut reservation = inner.allocator().reserve(0).unwrap();
        let ten = blocks(at, 10);
        inner.transact(50, |handle| inner.convert(handle, &node.inode, ten, &mut reservation)).unwrap();
    }
    volume.sync().unwrap();
    let map = map_of(&volume, &node.inode);
    assert_eq!((map.depth(), map.lock().root_len(), map.lookup(FileBlock::ZERO, 5000).len), (0, 1, 1000));
}

#[test]
fn a_conversion_without_space_for_its_nodes_stops_the_volume() {
    let device = make();
    let volume = open(&device);
    let node = create(&volume, 84);
    let inner = &volume.engine;
    for at in [0, 100, 200, 300] {
        add(&volume, &node, blocks(at, 10), false);
    }
    let all = claim_all(&volume);
    let mut none = inner.allocator().reserve(0).unwrap();
    let one = blocks(4, 1);
    let error = inner.transact(50, |handle| inner.convert(handle, &node.inode, one, &mut none)).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert!(matches!(inner.check_writable(), Err(Error::Stopped(_))));
    drop(all);
}

#[test]
fn metadata_is_freed_some_at_a_time() {
    let device = make();
    let volume = open(&device);
    let dir = volume.root().unwrap().mkdir(b"dir", &crate::NewInode::new()).unwrap();
    let inner = &volume.engine;
    add(&volume, &dir, blocks(1, 2000), true);
    let mut handles = 0;
    loop {
        handles += 1;
        let free = inner.counts().free_blocks();
        let tail = BlockRange::starting_at(FileBlock(1));
        let done = inner.transact(50, |handle| inner.remove_tail(handle, &dir.inode, tail)).unwrap();
        assert!(inner.counts().free_blocks() - free <= 512, "each takes room in a revoke block");
        if done {
            break;
        }
    }
    assert_eq!(handles, 4);
}

#[test]
fn an_index_key_other_than_the_first_block_below_is_corruption() {
    let device = make();
    let volume = open(&device);
    let node = create(&volume, 84);
    scatter(&volume, &node, 10..200).unwrap();
    drop(node);
    volume.close().unwrap();
    let volume = Volume::open_device(device.clone(), &VolumeOptions::new().read_only(true)).unwrap();
    let mut i_block = volume.engine.inode(InodeNo(12)).unwrap().core().block;
    let kind = BlockKind::ExtentNode(InodeNo(12), None);
    let load = |i_block: &[u8; 60]| {
        ExtentMap::load(i_block, volume.engine.layout(), kind, &fresh_cache(&device), true)
    };
    load(&i_block).unwrap();
    for first in [0_u32, 19, 21] {
        // `ei_block` of the first entry follows the header.
        i_block[12..16].copy_from_slice(&first.to_le_bytes());
        let error = load(&i_block).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
}

/// Returns an empty cache.
fn fresh_cache(device: &Arc<MemDevice>) -> MetaCache {
    MetaCache::new(
        Arc::clone(device) as Arc<dyn crate::Device>,
        1024,
        32 << 10,
        &crate::memory::Budget::new(0),
    )
}

#[test]
fn a_run_that_may_be_longer_than_the_blocks_up_to_2_to_the_32_ends_there() {
    use crate::allocator::Neighbours as _;
    let device = make();
    let volume = open(&device);
    let node = create(&volume, 84);
    let map = map_of(&volume, &node.inode);
    for mapped in [false, true] {
        for before in 0..4 {
            let block = FileBlock(u32::MAX - before);
            for max in [before + 1, before + 2, u32::MAX] {
                assert!(map.lookup(block, max).end() <= FileBlock::LIMIT, "{block}, {max}");
                assert!(map.run(block, max).end() <= FileBlock::LIMIT, "{block}, {max}");
                assert!(map.run_len(block, max) <= before + 1, "{block}, {max}");
            }
        }
        if !mapped {
            add(&volume, &node, blocks(u32::MAX - 2, 1), true);
        }
    }
}

#[test]
fn the_estimate_of_memory_counts_the_regions_that_were_looked_up() {
    let device = make();
    let volume = open(&device);
    let node = create(&volume, 84);
    let map = map_of(&volume, &node.inode);
    let empty = map.memory();
    add(&volume, &node, blocks(0, 10), true);
    map.lookup(FileBlock(3), 1);
    let one = map.memory();
    assert!((empty + size_of::<Region>()..empty + 1024).contains(&one), "{empty}, then {one}");
    add(&volume, &node, blocks(5000, 10), true);
    map.lookup(FileBlock(5000), 1);
    assert!(map.memory() >= one + 64 * size_of::<Region>(), "the second chunk counts as full");
}

/// A view of such a file took 400 MiB on an image of 16 MiB.
#[test]
fn extents_map_no_more_blocks_than_the_volume_has_even_on_a_read_only_volume() {
    let device = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*device, &MkfsOptions::new().block_size(1024).device_is_zero(true)).unwrap();
    let volume = Volume::open_device(device.clone(), &VolumeOptions::new().read_only(true)).unwrap();
    let layout = volume.engine.layout();
    const LEN: u32 = 4200;
    let free = |start: &u64| layout.check_data_range(FsBlock(*start), LEN.into()).is_ok();
    let start = (0..layout.blocks_count).find(free).unwrap();
    for (count, is_possible) in [(3, true), (4, false)] {
        let extent = |n: u32| Extent {
            logical: FileBlock(n * 10_000),
            physical: FsBlock(start),
            len: LEN,
            unwritten: false,
        };
        let mut i_block = [0; 60];
        extent::encode_leaf(&mut i_block, &(0..count).map(extent).collect::<Vec<_>>());
        let kind = BlockKind::ExtentNode(InodeNo(12), None);
        let load = |layout: &Layout| ExtentMap::load(&i_block, layout, kind, &fresh_cache(&device), false);
        assert_eq!(load(layout).is_ok(), is_possible, "{count} extents");
        let mut with_shared_blocks = Layout::clone(layout);
        with_shared_blocks.max_mapped_blocks = u64::MAX;
        assert!(load(&with_shared_blocks).is_ok());
    }
}

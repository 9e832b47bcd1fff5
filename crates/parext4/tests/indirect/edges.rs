//! Limits of space and of transactions, and claims that are given up.

use std::io::{self, IoSlice};
use std::sync::Arc;

use parext4::{Device, Error, MemDevice, Volume};
use testkit::Image;
use testkit::device::{HookedDevice, Hooks};
use testkit::volume::{DirectFiles as _, Shape, assert_clean, assert_recovers, untimed};

const BLOCK: u64 = 1024;
/// File blocks of a leaf.
const LEAF: u64 = 256;
/// More leaves than stay in memory.
const LEAVES: u64 = 4500;

fn shape() -> Shape {
    Shape::new(16, 1024, true).without_extents()
}

fn open(device: &Arc<MemDevice>) -> Volume {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &untimed()).unwrap()
}

/// One block below each of many indirect blocks is freed in as many transactions as the small
/// journal needs, and a crash in the middle continues at the next open.
#[test]
fn a_sparse_file_is_deleted_in_bounded_transactions() {
    let device = Arc::new(shape().make());
    let volume = open(&device);
    let free = volume.space().free_blocks;
    let file = volume.create_direct("/sparse").unwrap();
    let place = |leaf: u64| (12 + leaf * LEAF) * BLOCK;
    for leaf in 0..LEAVES {
        file.write_all_at(&[7; BLOCK as usize], place(leaf)).unwrap();
    }
    // The blocks, their leaves, the double and the triple indirect block, and the blocks below the
    // triple one.
    let middles = (LEAVES - 1 - LEAF).div_ceil(LEAF);
    assert_eq!(file.inode_ref().metadata().sectors, 2 * (LEAVES + LEAVES + 1 + 1 + middles));
    volume.sync().unwrap();
    // Some of the leaves are no longer in memory.
    let mut bytes = [0; 2 * BLOCK as usize];
    for leaf in (0..LEAVES).step_by(11) {
        file.write_all_at(&[8; BLOCK as usize], place(leaf) + BLOCK).unwrap();
        file.read_exact_at(&mut bytes, place(leaf)).unwrap();
        let (old, new) = bytes.split_at(BLOCK as usize);
        assert!(old == [7; BLOCK as usize] && new == [8; BLOCK as usize], "leaf {leaf}");
    }
    volume.sync().unwrap();
    let before = Arc::new(device.fork());
    drop(file);
    volume.remove_file("/sparse").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.space().free_blocks, free);
    volume.close().unwrap();
    assert_clean(&device, "after the deletion");

    let volume = open(&before);
    let file = volume.direct_file("/sparse").unwrap();
    file.set_len(500 * LEAF * BLOCK).unwrap();
    volume.remove_file("/sparse").unwrap();
    volume.sync().unwrap();
    let crashed = before.fork();
    assert_recovers(&crashed, "deleted while open");
    let crashed = Arc::new(before.fork());
    testkit::volume::recover(&crashed);
    assert_clean(&crashed, "deleted while open");
    drop((file, volume));
}

/// All space is used, to the last block, and an operation that fails claims nothing for good.
#[test]
fn a_full_volume_loses_no_block() {
    let device = Arc::new(Shape { mib: 5, ..shape() }.make());
    let volume = open(&device);
    let free = volume.space().free_blocks;
    for round in 0..2 {
        let file = volume.create_direct("/file").unwrap();
        let mut leaf = 0;
        let error = loop {
            match file.write_all_at(&[7; 8 * BLOCK as usize], leaf * LEAF * BLOCK) {
                Ok(()) => leaf += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NoSpace), "{error}");
        assert!(leaf > 300, "round {round}: only {leaf} writes");
        file.set_len(0).unwrap();
        volume.sync().unwrap();
        let buffered = file.buffered().unwrap();
        let mut leaf = 0;
        let error = loop {
            match buffered.write_all_at(&[8; BLOCK as usize], leaf * LEAF * BLOCK) {
                Ok(()) => leaf += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NoSpace), "{error}");
        buffered.sync_all().expect("accepted data has its space");
        let mut bytes = [0; BLOCK as usize];
        for leaf in 0..leaf {
            file.read_exact_at(&mut bytes, leaf * LEAF * BLOCK).unwrap();
            assert_eq!(bytes, [8; BLOCK as usize], "leaf {leaf}");
        }
        drop((buffered, file));
        volume.remove_file("/file").unwrap();
        volume.sync().unwrap();
        // A flush thread that still has the file deletes it.
        let is_free = testkit::poll::until(|| volume.space().free_blocks == free);
        assert!(is_free, "round {round}: {} of {free} blocks", volume.space().free_blocks);
    }
    volume.close().unwrap();
    assert_clean(&device, "after the volume was full");
}

/// Writes data until the volume has no block left for it.
fn fill_up(volume: &Volume) {
    let ballast = volume.create_direct("/ballast").unwrap();
    for blocks in [64, 1] {
        let bytes = vec![9; blocks * BLOCK as usize];
        while ballast.append(&bytes).is_ok() {}
    }
}

/// Each of many dirty pages needs an indirect block that a punch of other blocks empties, or the
/// block above it. There are more pages than blocks in the reserve for metadata. So the pages can
/// be written back only if each keeps its indirect blocks.
#[test]
fn dirty_pages_keep_their_indirect_blocks_when_other_blocks_are_punched() {
    const PAGES: u64 = 130;
    // The distance between the pages, and the place of each, in blocks. The first block of each
    // distance is punched.
    let (below_one_leaf, below_one_double) = ((LEAF, 100), (LEAF * LEAF, LEAF));
    for (distance, place) in [below_one_leaf, below_one_double] {
        let device = Arc::new(Shape { mib: 5, ..shape() }.make());
        let quiet = untimed().write_back_interval(None);
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &quiet).unwrap();
        let free = volume.space().free_blocks;
        let file = volume.create_direct("/file").unwrap();
        let start = |nth: u64| (12 + LEAF + LEAF * LEAF + nth * distance) * BLOCK;
        for nth in 0..PAGES {
            file.write_all_at(&[7; BLOCK as usize], start(nth)).unwrap();
        }
        let buffered = file.buffered().unwrap();
        for nth in 0..PAGES {
            buffered.write_all_at(&[8; BLOCK as usize], start(nth) + place * BLOCK).unwrap();
        }
        for nth in 0..PAGES {
            file.punch_hole(start(nth)..start(nth) + place.min(LEAF) * BLOCK).unwrap();
        }
        fill_up(&volume);
        buffered.sync_all().expect("accepted data has its space");
        let mut bytes = [0; BLOCK as usize];
        for nth in 0..PAGES {
            file.read_exact_at(&mut bytes, start(nth) + place * BLOCK).unwrap();
            assert_eq!(bytes, [8; BLOCK as usize], "page {nth}");
        }
        drop((buffered, file));
        volume.close().unwrap();
        assert_clean(&device, "pages that kept their indirect blocks");

        let volume = open(&device);
        let file = volume.direct_file("/file").unwrap();
        volume.remove_file("/ballast").unwrap();
        volume.sync().unwrap();
        // A page that is dropped keeps nothing.
        file.buffered().unwrap().write_all_at(&[8; BLOCK as usize], start(PAGES)).unwrap();
        file.set_len(0).unwrap();
        volume.sync().unwrap();
        assert_eq!((file.inode_ref().metadata().sectors, volume.space().free_blocks), (0, free));
    }
}

/// Fails the writes of this length.
#[derive(Debug)]
struct FailsLength(usize);

impl Hooks for FailsLength {
    fn write_at(&self, inner: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() == self.0 {
            return Err(io::Error::other("planted"));
        }
        inner.write_at(offset, bufs)
    }
}

/// A write whose data fails leaves nothing on the device.
#[test]
fn a_failed_write_leaves_no_block() {
    let memory = Arc::new(shape().make_poisoned());
    let device: Arc<dyn Device> =
        Arc::new(HookedDevice::new(Arc::clone(&memory) as Arc<dyn Device>, FailsLength(17 * BLOCK as usize)));
    let volume = Volume::open_device(device, &untimed()).unwrap();
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 4 * BLOCK as usize], 0).unwrap();
    volume.sync().unwrap();
    let failed = file.write_all_at(&[2; 17 * BLOCK as usize], 4 * BLOCK);
    assert!(failed.is_err(), "{failed:?}");
    drop((file, volume));
    let recovered = Arc::new(memory.fork());
    testkit::volume::recover(&recovered);
    assert_clean(&recovered, "after a failed write");
    let volume = open(&recovered);
    let file = volume.direct_file("/file").unwrap();
    assert_eq!((file.size(), file.fiemap(0..u64::MAX).unwrap().len()), (4 * BLOCK, 1));
}

/// The pointer to the target of a new link is in memory only until its transaction closes.
#[test]
fn a_long_symbolic_link_that_is_removed_at_once_leaves_no_block() {
    let Some(image) = Image::mke2fs(16, &["-t", "ext3"]) else { return };
    let volume = image.open();
    let before = volume.space();
    for nth in 0..20 {
        let path = format!("/link-{nth}");
        volume.symlink(&path, "t".repeat(100)).unwrap();
        volume.remove_file(&path).unwrap();
    }
    volume.sync().unwrap();
    assert_eq!(volume.space(), before);
    volume.close().unwrap();
    image.fsck();
}

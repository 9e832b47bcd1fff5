//! Blocks that writes claim in files without extents, while other threads add, read and drop the
//! same indirect blocks.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::models::leave_blocks;
use parext4::{DirectFile, MemDevice, SplitAt, Volume};

use super::conversions::Acknowledged;
use super::support::*;
use testkit::volume::DirectFiles as _;

/// Blocks below the single indirect block, and below the first two of the double one.
const LEAVES: [u64; 3] = [20, 300, 600];

/// Returns a volume with a file that has one block below each of [`LEAVES`]. No indirect block is
/// in memory, and each that is read may displace the others.
fn with_leaves(image: &MemDevice) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(image.fork());
    let volume = open_quiet(Arc::clone(&device), SplitAt::Completion);
    let file = volume.create_direct("/f").unwrap();
    LEAVES.iter().for_each(|&leaf| write_block(&file, 1, leaf));
    drop(file);
    volume.close().unwrap();
    let volume = open_quiet(Arc::clone(&device), SplitAt::Completion);
    (device, volume)
}

#[test]
fn holes_of_one_indirect_block_are_filled_in_parallel() {
    check_without_extents(100, &[Fault::LeafAddedTwice], |image| {
        let device = Arc::new(image.fork());
        let volume = open_quiet(Arc::clone(&device), SplitAt::Completion);
        let file = volume.create_direct("/f").unwrap();
        // Writes that extend the file exclude each other.
        file.set_len(302 * BLOCK as u64).unwrap();
        let done = Acknowledged::default();
        let syncer = {
            let (done, device) = (done.clone(), Arc::clone(&device));
            spawn(&file, move |f| done.sync(f, &device))
        };
        let [single, double, _] = LEAVES;
        let (one, other) = (done.clone(), done.clone());
        race(
            &file,
            move |f| one.write(f, &[single, double]),
            move |f| other.write(f, &[single + 2, double + 1]),
        );
        syncer.join().unwrap();
        done.sync(&file, &device);
        file.set_len(0).unwrap();
    });
}

/// The indirect block of a dirty page has one other block, which a punch frees.
#[test]
fn a_dirty_page_keeps_its_indirect_block() {
    check_stopping_without_extents(100, &[Fault::DelayedIgnored, Fault::DelayedUnlocked], |image| {
        let (_, volume) = with_leaves(image);
        let file = volume.direct_file("/f").unwrap();
        let [single, ..] = LEAVES;
        let at = |block: u64| block * BLOCK as u64;
        let buffered = file.buffered().unwrap();
        let page = single + 8;
        let write = move |f: &DirectFile| f.buffered().unwrap().write_all_at(&[2; BLOCK], at(page)).unwrap();
        race(&file, write, move |f| f.punch_hole(at(single)..at(single + 1)).unwrap());
        // A freed block can be allocated, and is.
        volume.create_direct("/other").unwrap().sync_all().unwrap();
        leave_blocks(&volume, -1000);
        buffered.sync_data().expect("accepted data can be written back");
        assert!(read(&file, BLOCK / SECTOR, at(page)).iter().all(|&byte| byte == 2));
    });
}

#[test]
fn indirect_blocks_in_use_stay_in_memory() {
    check_without_extents(100, &[Fault::LeavesDroppedInUse], |image| {
        let (device, volume) = with_leaves(image);
        let file = volume.direct_file("/f").unwrap();
        let done = Acknowledged::default();
        let writer = done.clone();
        let [single, double, _] = LEAVES;
        race(
            &file,
            move |f| writer.write(f, &[single + 1, double + 1]),
            |f| {
                for leaf in LEAVES.into_iter().rev() {
                    assert!(read(f, BLOCK / SECTOR, leaf * BLOCK as u64).iter().all(|&byte| byte == 1));
                }
            },
        );
        done.sync(&file, &device);
    });
}

#[test]
fn an_indirect_block_that_was_read_before_a_change_is_read_again() {
    check_stopping_without_extents(100, &[Fault::OldLeafKept], |image| {
        let [single, double, other] = LEAVES;
        let (_, volume) = with_leaves(image);
        let file = volume.direct_file("/f").unwrap();
        let one = |f: &DirectFile, block| {
            read(f, BLOCK / SECTOR, block * BLOCK as u64).iter().all(|&byte| byte == 1)
        };
        let change = move |f: &DirectFile| {
            write_block(f, 1, double + 1);
            f.sync_data().unwrap();
            // The indirect block is on the device, so these may displace it.
            assert!(one(f, single) && one(f, other));
        };
        race(&file, move |f| assert!(one(f, double)), change);
        assert!(one(&file, double + 1), "a write below the indirect block is lost");
    });
}

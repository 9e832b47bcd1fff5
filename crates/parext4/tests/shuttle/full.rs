//! Full volumes: an operation that reserved space when it began must not fail for lack of space
//! when it ends.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicBool, Ordering};

use parext4::fault::Fault;
use parext4::models::{claim_blocks, leave_blocks, limit_nodes};
use parext4::{
    AlignedBuf, DirectFile, Error, FileSize, IoFlags, IoRequest, MemDevice, Policy, SplitAt, Volume,
};

use super::support::*;
use testkit::volume::DirectFiles as _;

/// Blocks of the file.
const BLOCKS: usize = 16;

/// Makes a file of unwritten blocks in a tree whose nodes have few entries.
fn file_on(volume: &Volume) -> DirectFile {
    let file = volume.create_direct("/f").unwrap();
    limit_nodes(&file, 6).unwrap();
    file.allocate(0..(BLOCKS * BLOCK) as u64, FileSize::Extend).unwrap();
    file
}

/// Returns the contents of a file of which the given blocks were written.
fn with(written: &[(usize, u8)]) -> Vec<u8> {
    let mut blocks = vec![0; BLOCKS];
    for &(block, byte) in written {
        blocks[block] = byte;
    }
    blocks
}

/// Uses up all space at an arbitrary moment while writers split an extent.
fn run_out_of_space(image: &MemDevice, split_at: SplitAt) {
    let volume = open_quiet(Arc::new(image.fork()), split_at);
    let file = file_on(&volume);
    let starver = {
        let volume = volume.clone();
        spawn(&file, move |_| {
            yield_randomly(60);
            leave_blocks(&volume, NOTHING);
        })
    };
    race(
        &file,
        |f| [1, 6, 12].into_iter().for_each(|block| write_block(f, 1, block)),
        |f| [3, 9].into_iter().for_each(|block| write_block(f, 2, block)),
    );
    starver.join().unwrap();
    assert_eq!(blocks_of(&file, BLOCKS), with(&[(1, 1), (6, 1), (12, 1), (3, 2), (9, 2)]));
    volume.sync().unwrap();
}

#[test]
fn a_write_completes_though_space_has_run_out() {
    check(400, &[Fault::ReserveNothing], |image| run_out_of_space(image, SplitAt::Completion));
}

#[test]
fn extents_stay_cut_for_writes_under_way() {
    check(400, &[Fault::PinsForgotten], |image| run_out_of_space(image, SplitAt::Submission));
}

/// Makes a file whose root is full, so that no extent can be split.
fn full_file_on(volume: &Volume) -> DirectFile {
    let file = volume.create_direct("/f").unwrap();
    file.allocate(0..(BLOCKS * BLOCK) as u64, FileSize::Extend).unwrap();
    write_block(&file, 1, 0);
    write_block(&file, 1, 2);
    // The leaf has no marks left.
    file.sync_data().unwrap();
    leave_blocks(volume, NOTHING);
    file
}

fn widen_at_once(volume: &Volume) {
    let file = full_file_on(volume);
    race(&file, |f| write_block(f, 1, 6), |f| write_block(f, 2, 9));
    assert_eq!(blocks_of(&file, BLOCKS), with(&[(0, 1), (2, 1), (6, 1), (9, 2)]));
    volume.sync().unwrap();
}

#[test]
fn a_write_that_is_widened_spares_its_neighbours() {
    check(300, &[Fault::WidenUnchecked], |image| widen_at_once(&volume(image)));
    for (policy, faults) in [(Policy::Exclusive, &[][..]), (Policy::SharedOverwrite, &[Fault::WidenAsWrite])]
    {
        check(300, faults, move |image| widen_at_once(&open_under(Arc::new(image.fork()), policy)));
    }
}

#[test]
fn operations_of_one_queue_are_widened_one_after_the_other() {
    check(100, &[], |image| {
        let volume = volume(image);
        let file = full_file_on(&volume);
        let mut queue = volume.io_queue(4);
        let writer = spawn(&file, |f| write_block(f, 3, 12));
        for block in [6, 9] {
            let buf = AlignedBuf::from_slice(&[2; BLOCK]);
            let request = IoRequest::Write { buf, len: BLOCK, offset: block * BLOCK as u64 };
            queue.submit(&file, request, block, IoFlags::new());
        }
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            queue.harvest(&mut done).unwrap();
        }
        writer.join().unwrap();
        assert!(done.iter().all(|completion| completion.result.is_ok()), "{done:?}");
        assert_eq!(blocks_of(&file, BLOCKS), with(&[(0, 1), (2, 1), (6, 2), (9, 2), (12, 3)]));
    });
}

/// A write of a queue has blocks reserved, which come back at an arbitrary moment while another
/// thread finds no space.
#[test]
fn a_write_gets_the_space_that_another_one_returns() {
    check(300, &[Fault::ClaimsIgnored, Fault::EventsIgnored], |image| {
        let volume = volume(image);
        let file = file_on(&volume);
        let other = volume.create_direct("/other").unwrap();
        let mut queue = volume.io_queue(4);
        let buf = AlignedBuf::from_slice(&[1; BLOCK]);
        queue.submit(
            &file,
            IoRequest::Write { buf, len: BLOCK, offset: 6 * BLOCK as u64 },
            0,
            IoFlags::new(),
        );
        leave_blocks(&volume, 0);
        let writer = spawn(&other, |f| write_block(f, 2, 0));
        yield_randomly(200);
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            queue.harvest(&mut done).unwrap();
        }
        writer.join().unwrap();
        assert_eq!((blocks_of(&file, BLOCKS), blocks_of(&other, 1)), (with(&[(6, 1)]), vec![2]));
    });
}

/// An operation has blocks claimed from before the first of two writes that lack space, and returns
/// them at an arbitrary moment.
#[test]
fn several_writes_get_the_space_that_one_operation_returns() {
    let faults = [Fault::ClaimsIgnored, Fault::EventsIgnored, Fault::EpochUnfinished];
    check(300, &faults, |image| {
        let volume = volume(image);
        let (one, other) = (volume.create_direct("/one").unwrap(), volume.create_direct("/other").unwrap());
        leave_blocks(&volume, 2);
        let claim = claim_blocks(&volume, 2).unwrap();
        let writers = [one, other].map(|file| spawn(&file, |f| write_block(f, 1, 0)));
        yield_randomly(200);
        drop(claim);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

/// Another thread always has blocks claimed, but no claim lasts.
#[test]
fn a_write_that_does_not_fit_waits_for_no_later_claim() {
    check(30, &[Fault::LaterClaimsAwaited], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        leave_blocks(&volume, 4);
        let is_over = Arc::new(AtomicBool::new(false));
        let mut claim = claim_blocks(&volume, 1).unwrap();
        let writer = {
            let is_over = Arc::clone(&is_over);
            spawn(&file, move |f| {
                let written = f.write_all_at(&[1; BLOCKS * BLOCK], 0);
                assert!(matches!(written, Err(Error::NoSpace)), "{written:?}");
                is_over.store(true, Ordering::SeqCst);
            })
        };
        while !is_over.load(Ordering::SeqCst) {
            let next = claim_blocks(&volume, 1).unwrap();
            drop(std::mem::replace(&mut claim, next));
            shuttle::thread::yield_now();
        }
        writer.join().unwrap();
    });
}

/// Two write-backs have blocks for their data, but not for their trees: the one that was reserved
/// stays with a third file. Neither gets the blocks of the other.
#[test]
fn write_backs_without_space_for_their_trees_keep_their_blocks() {
    check(100, &[Fault::UnmappedFreed], |image| {
        let volume = volume(image);
        let [one, other, _third] = ["/one", "/other", "/third"].map(|path| {
            let file = volume.create_direct(path).unwrap();
            // The root is full then.
            [0, 2, 4, 6].into_iter().for_each(|block| write_block(&file, 1, block));
            file.buffered().unwrap().write_all_at(&[2; BLOCK], 8 * BLOCK as u64).unwrap();
            file
        });
        leave_blocks(&volume, NOTHING);
        let sync = |f: &DirectFile| {
            let synced = f.sync_data();
            assert!(matches!(synced, Err(Error::NoSpace)), "{synced:?}");
        };
        race(&one, sync, move |_| sync(&other));
    });
}

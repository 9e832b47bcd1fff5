//! Holes, and collapsed and inserted ranges, against reads, writes and appends.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::models::limit_nodes;
use parext4::{DirectFile, FileSize};

use super::support::*;
use testkit::volume::DirectFiles as _;

const KIB: u64 = BLOCK as u64;

#[test]
fn the_edges_of_two_holes_are_in_one_block() {
    check(300, &[Fault::EdgesOutsideRange], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 2, 0);
        race(&file, |f| f.punch_hole(0..100).unwrap(), |f| f.zero_range(100..200, FileSize::Keep).unwrap());
        let seen = read(&file, 1, 0);
        assert!(seen[..200].iter().all(|&byte| byte == 0), "zeros are lost");
        assert!(seen[200..].iter().all(|&byte| byte == 1));
    });
}

#[test]
fn a_hole_races_with_a_write() {
    check(300, &[], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..4 * KIB, FileSize::Extend).unwrap();
        race(
            &file,
            |f| write(f, 2, 4, KIB),
            |f| {
                f.punch_hole(0..2 * KIB).unwrap();
                f.zero_range(2 * KIB..4 * KIB, FileSize::Keep).unwrap();
            },
        );
        let seen = blocks_of(&file, 4);
        // The write came first, between the two holes, or last.
        assert!(seen == [0; 4] || seen == [0, 2, 0, 0] || seen == [0, 2, 2, 0], "{seen:?}");
        volume.close().unwrap();
    });
}

#[test]
fn punched_blocks_are_not_reused_under_a_read() {
    check(40, &[Fault::ReadWithoutRange, Fault::PunchWithoutRange], |image| {
        let volume = volume(image);
        let (old, new) = (volume.create_direct("/old").unwrap(), volume.create_direct("/new").unwrap());
        write(&old, 1, 240, 0);
        fill_up(&volume);
        volume.sync().unwrap();
        let reuse = {
            let volume = volume.clone();
            move |f: &DirectFile| {
                f.punch_hole(0..120 * KIB).unwrap();
                volume.sync().unwrap();
                write(&new, 2, 200, 0);
            }
        };
        let look = |f: &DirectFile| {
            let seen = read(f, 240, 0);
            assert!(seen.iter().all(|byte| *byte <= 1), "another file's data is read");
        };
        race(&old, reuse, look);
    });
}

#[test]
fn punched_blocks_wait_for_their_commit() {
    check(20, &[Fault::ReuseAtOnce], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let (old, new) = (volume.create_direct("/old").unwrap(), volume.create_direct("/new").unwrap());
        write(&old, 1, 64, 0);
        volume.sync().unwrap();
        fill_up(&volume);
        volume.sync().unwrap();
        // If another file gets the blocks, the hole is durable by then.
        old.punch_hole(0..31 * KIB).unwrap();
        write(&new, 2, 40, 0);
        let (_volume, after) = after_crash(&device, "/old");
        assert!(
            read(&after, 64, 0).iter().all(|byte| *byte <= 1),
            "another file's data is visible after a crash"
        );
    });
}

/// Makes a file of blocks full of 1, 2, 3 and 4, in a tree of narrow nodes.
fn four_blocks(volume: &parext4::Volume) -> DirectFile {
    let file = volume.create_direct("/f").unwrap();
    limit_nodes(&file, 4).unwrap();
    for (at, byte) in [(0, 1), (2, 3), (1, 2), (3, 4)] {
        write_block(&file, byte, at);
        // Keeps the blocks apart on the device.
        write_block(&volume.create_direct(format!("/{at}")).unwrap(), 9, 0);
    }
    file
}

#[test]
fn a_write_races_with_a_collapse() {
    check(300, &[Fault::ShiftOutsideRange, Fault::ReleaseAtSubmission], |image| {
        let volume = volume(image);
        let file = four_blocks(&volume);
        race(&file, |f| write(f, 7, 3, 3 * KIB), |f| f.collapse_range(KIB..2 * KIB).unwrap());
        let seen = sectors(&read(&file, 16, 0));
        let before = [1, 1, 3, 3, 7, 7, 7];
        let behind = [1, 1, 3, 3, 4, 4, 7, 7, 7];
        assert!(seen == before || seen == behind, "{seen:?}");
        volume.sync().unwrap();
    });
}

#[test]
fn a_read_races_with_an_insertion() {
    check(300, &[], |image| {
        let volume = volume(image);
        let file = four_blocks(&volume);
        race(
            &file,
            |f| f.insert_range(2 * KIB..3 * KIB).unwrap(),
            |f| {
                let seen = sectors(&read(f, 8, 3 * KIB));
                assert!(seen == [4, 4] || seen == [3, 3, 4, 4], "{seen:?}");
            },
        );
        assert_eq!(blocks_of(&file, 8), [1, 2, 0, 3, 4]);
    });
}

#[test]
fn an_append_races_with_a_shifted_range() {
    check(300, &[Fault::ShiftKeepsClaims], |image| {
        let volume = volume(image);
        let file = four_blocks(&volume);
        race(
            &file,
            |f| f.append(&[5; BLOCK]).map(drop).unwrap(),
            |f| {
                f.collapse_range(0..2 * KIB).unwrap();
                f.insert_range(KIB..2 * KIB).unwrap();
            },
        );
        let seen = blocks_of(&file, 8);
        assert_eq!(seen, [3, 0, 4, 5]);
    });
}

#[test]
fn operations_before_a_shifted_range_are_unaffected() {
    check(200, &[], |image| {
        let volume = volume(image);
        let file = four_blocks(&volume);
        file.insert_range(KIB..41 * KIB).unwrap();
        let third = spawn(&file, |f| {
            for at in 1..6 {
                write_block(f, 8, at * 2);
            }
        });
        race(
            &file,
            |f| {
                for _ in 0..3 {
                    f.collapse_range(20 * KIB..21 * KIB).unwrap();
                    f.insert_range(41 * KIB..43 * KIB).unwrap();
                }
            },
            |f| assert_eq!(sectors(&read(f, 2, 0)), [1, 1]),
        );
        third.join().unwrap();
        let seen = blocks_of(&file, 60);
        assert_eq!(seen[..12], [1, 0, 8, 0, 8, 0, 8, 0, 8, 0, 8, 0]);
        let rest: Vec<u8> = seen[12..].iter().copied().filter(|&byte| byte != 0).collect();
        assert_eq!(rest, [2, 3, 4]);
        volume.close().unwrap();
    });
}

//! Appends against each other and against other operations that move the end of the file.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::models::leave_blocks;
use parext4::{Error, SplitAt};

use super::support::*;
use testkit::volume::DirectFiles as _;

#[test]
fn appends_are_neither_lost_nor_torn() {
    check(200, &[Fault::AppendAtSize], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        let writer =
            |byte: u8| move |f: &parext4::DirectFile| f.append(&[byte; 3 * SECTOR]).map(drop).unwrap();
        race(&file, writer(1), writer(2));
        let seen = sectors(&read(&file, 6, 0));
        assert!(seen == [1, 1, 1, 2, 2, 2] || seen == [2, 2, 2, 1, 1, 1], "{seen:?}");
    });
}

#[test]
fn an_append_races_with_a_write_past_the_end() {
    check(300, &[Fault::AppendAtSize], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        race(&file, |f| f.append(&[1; 3 * SECTOR]).map(drop).unwrap(), |f| write(f, 2, 1, SECTOR as u64));
        // Either the write overwrote the middle of the append, or the append came after the write.
        let seen = sectors(&read(&file, 16, 0));
        assert!(seen == [1, 2, 1] || seen == [0, 2, 1, 1, 1], "{seen:?}");
    });
}

#[test]
fn an_append_whose_block_is_punched_leaves_no_gap() {
    check(300, &[Fault::ClaimAgain], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 9, 1, 0);
        // While the rest of the first block is written, the append needs only its own bytes.
        let third = spawn(&file, |f| f.append(&[3; SECTOR]).map(drop).unwrap());
        race(
            &file,
            |f| f.append(&[1; SECTOR]).map(drop).unwrap(),
            |f| f.punch_hole(0..BLOCK as u64).unwrap(),
        );
        third.join().unwrap();
        let seen = sectors(&read(&file, 8, 0));
        let appended = [[1, 3], [3, 1], [0, 1], [0, 3]].contains(&[seen[1], seen[2]]);
        assert!(seen.len() == 3 && appended, "{seen:?}");
    });
}

/// The first buffered handle makes a direct append that waits need whole pages. The append then
/// queues again, after a buffered one.
#[test]
fn an_append_of_a_part_of_a_sector_overwrites_no_later_append() {
    check(300, &[Fault::OvertakenClaimKept], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 9, 1, 0);
        let direct = |f: &parext4::DirectFile| match f.append(&[1; 200]) {
            Ok(at) => assert!(at == SECTOR as u64, "at {at}"),
            // It would have to begin within a sector.
            Err(error) => assert!(matches!(error, Error::Invalid(_)), "{error}"),
        };
        race(&file, direct, |f| _ = f.buffered().unwrap().append(&[2; 88]).unwrap());
        let seen = read(&file, 2, 0);
        let count = |byte: u8| seen.iter().filter(|&&seen| seen == byte).count();
        assert!(count(9) == SECTOR && count(2) == 88 && [0, 200].contains(&count(1)), "{seen:?}");
    });
}

#[test]
fn an_append_after_a_truncation_goes_to_the_end() {
    check_stopping(300, &[Fault::WithdrawLate], |image| {
        let volume = open_quiet(Arc::new(image.fork()), SplitAt::default());
        let file = volume.create_direct("/f").unwrap();
        write_block(&file, 1, 0);
        let cut_and_append = |f: &parext4::DirectFile| {
            f.set_len(BLOCK as u64).unwrap();
            if f.append(&[3; BLOCK]).unwrap() > BLOCK as u64 {
                assert_eq!(blocks_of(f, 8), [1, 0, 2, 3], "an append landed past the truncated end");
            }
        };
        race(&file, |f| write_block(f, 2, 2), cut_and_append);
    });
}

/// Appends a block, if there is space for it, after what was visible before.
fn append_behind(file: &parext4::DirectFile, byte: u8) {
    let before = file.size();
    if let Ok(at) = file.append(&[byte; BLOCK]) {
        assert!(at >= before, "an append at {at} in a file of {before} bytes");
    }
}

#[test]
fn an_append_that_fails_leaves_its_neighbours_alone() {
    check(300, &[Fault::FailedClaimTakesAll], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        leave_blocks(&volume, 30);
        let third = spawn(&file, |f| append_behind(f, 3));
        race(
            &file,
            |f| assert!(f.append(&[1; 40 * BLOCK]).is_err(), "the volume has fewer blocks"),
            |f| {
                append_behind(f, 2);
                append_behind(f, 2);
            },
        );
        third.join().unwrap();
        let seen = sectors(&read(&file, 120, 0));
        let count = |byte: u8| seen.iter().filter(|&&sector| sector == byte).count();
        assert_eq!((count(2), count(3)), (4, 2), "{seen:?}");
        assert!(seen.iter().all(|byte| [0, 2, 3].contains(byte)), "{seen:?}");
    });
}

/// While the first append is in flight, a failed one gives up its bytes, but not those up to the
/// end of a write that waits for them.
#[test]
fn an_append_that_fails_leaves_writes_past_the_end_alone() {
    check(300, &[Fault::FailedClaimTakesAnnounced], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        leave_blocks(&volume, 30);
        let first = spawn(&file, |f| append_behind(f, 1));
        race(
            &file,
            |f| assert!(f.append(&[9; 40 * BLOCK]).is_err(), "the volume has fewer blocks"),
            |f| {
                write_block(f, 2, 1);
                append_behind(f, 3);
            },
        );
        first.join().unwrap();
        assert_eq!(sectors(&read(&file, 2, BLOCK as u64)), [2, 2], "the write was overwritten");
    });
}

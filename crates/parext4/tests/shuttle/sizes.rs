//! Operations that change the size, against each other and against reads.

use std::sync::{Arc, Mutex};

use parext4::FileSize;
use parext4::fault::Fault;

use super::support::*;
use testkit::volume::DirectFiles as _;

#[test]
fn a_reader_within_the_size_sees_the_data() {
    check(300, &[Fault::StaleSize], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 1, 0);
        race(
            &file,
            |f| write(f, 7, 4, 0),
            |f| {
                let size = f.size();
                let seen = sectors(&read(f, 4, 0));
                assert!((seen.len() * SECTOR) as u64 >= size, "data that was visible is gone");
                assert!(seen == [1] || seen == [7; 4], "half of a write is seen: {seen:?}");
            },
        );
    });
}

#[test]
fn blocks_below_the_size_are_converted() {
    check(300, &[Fault::SizeFirst], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        race(
            &file,
            |f| write(f, 7, 4, 0),
            |f| {
                while f.size() == 0 {
                    shuttle::thread::yield_now();
                }
                let size = f.size();
                assert_eq!(f.data_range(0).unwrap(), Some(0..size), "the size covers what is unwritten");
            },
        );
    });
}

#[test]
fn writes_that_extend_the_file_leave_the_largest_size() {
    check(300, &[Fault::SizeLowered], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        let third = spawn(&file, |f| write(f, 3, 2, 2048));
        race(&file, |f| write(f, 1, 2, 0), |f| write(f, 2, 2, 1024));
        third.join().unwrap();
        assert_eq!(sectors(&read(&file, 8, 0)), [1, 1, 2, 2, 3, 3]);
    });
}

#[test]
fn a_truncation_races_with_a_write() {
    check(300, &[Fault::ReleaseAtSubmission, Fault::ReleaseBeforeConversion], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        // The write converts the last block of the file and one more.
        write(&file, 1, 6, 0);
        file.allocate(3072..4096, FileSize::Keep).unwrap();
        race(&file, |f| write(f, 2, 4, 2048), |f| f.set_len(1024).unwrap());
        match file.size() {
            1024 => assert_eq!(sectors(&read(&file, 8, 0)), [1, 1]),
            // The write came last: the bytes truncated before it are zeros.
            4096 => assert_eq!(sectors(&read(&file, 8, 0)), [1, 1, 0, 0, 2, 2, 2, 2]),
            size => panic!("size {size}"),
        }
        volume.sync().unwrap();
    });
}

#[test]
fn an_append_races_with_a_truncation() {
    check(300, &[Fault::ReleaseAtSubmission], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 4, 0);
        race(&file, |f| f.append(&[2; SECTOR]).map(drop).unwrap(), |f| f.set_len(512).unwrap());
        // Either the append went to the new end, or the truncation removed it.
        let seen = sectors(&read(&file, 8, 0));
        assert!(seen == [1] || seen == [1, 2], "{seen:?}");
    });
}

#[test]
fn a_size_and_the_blocks_under_it_commit_together() {
    check(150, &[Fault::SizeLater, Fault::SizeFirst], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..2048, FileSize::Keep).unwrap();
        let seen = Arc::new(Mutex::new(None));
        let crash = {
            let (device, seen) = (Arc::clone(&device), Arc::clone(&seen));
            move |f: &parext4::DirectFile| {
                // Long enough for the write to reach its end.
                yield_randomly(40);
                f.sync_all().unwrap();
                *seen.lock().unwrap() = Some(device.fork());
            }
        };
        race(&file, |f| write(f, 7, 4, 0), crash);
        let crashed = seen.lock().unwrap().take().unwrap();
        let after = open(Arc::new(crashed)).direct_file("/f").unwrap();
        let size = after.size();
        after.set_len(2048).unwrap();
        let bytes = read(&after, 4, 0);
        let (inside, behind) = bytes.split_at(usize::try_from(size).unwrap());
        assert!(inside.iter().all(|b| *b == 7) && behind.iter().all(|b| *b == 0), "size {size}");
    });
}

#[test]
fn a_sync_carries_a_size_that_grew_over_written_blocks() {
    check(50, &[Fault::GrowUnjoined], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 1, 0);
        file.sync_data().unwrap();
        let sync = |f: &parext4::DirectFile| f.sync_data().unwrap();
        race(&file, |f| write(f, 2, 1, 512), sync);
        file.sync_data().unwrap();
        let (_volume, after) = after_crash(&device, "/f");
        assert_eq!(sectors(&read(&after, 4, 0)), [1, 2]);
    });
}

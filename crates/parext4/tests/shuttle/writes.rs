//! Writes against writes and reads.

use std::io::IoSlice;
use std::sync::Arc;

use parext4::fault::Fault;
use parext4::{Device, FileSize};

use super::support::*;
use testkit::volume::DirectFiles as _;

#[test]
fn two_writers_initialise_one_block() {
    check(300, &[Fault::OwnBytesOnly], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..1024, FileSize::Extend).unwrap();
        race(&file, |f| write(f, 1, 1, 0), |f| write(f, 2, 1, 512));
        assert_eq!(sectors(&read(&file, 2, 0)), [1, 2]);
    });
}

#[test]
fn a_write_holds_its_block_until_its_zeros_are_there() {
    check(300, &[Fault::ReleaseAtSubmission], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..1024, FileSize::Extend).unwrap();
        race(&file, |f| write(f, 1, 1, 0), |f| write(f, 2, 2, 0));
        let seen = sectors(&read(&file, 2, 0));
        assert!(seen == [1, 2] || seen == [2, 2], "zeros lie over what was written after: {seen:?}");
    });
}

#[test]
fn overlapping_writes_are_whole() {
    check(300, &[Fault::ReleaseAtSubmission], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 9, 6, 0);
        race(&file, |f| write(f, 1, 4, 0), |f| write(f, 2, 4, 1024));
        let seen = sectors(&read(&file, 6, 0));
        assert!(seen == [1, 1, 1, 1, 2, 2] || seen == [1, 1, 2, 2, 2, 2], "{seen:?}");
    });
}

#[test]
fn reads_never_see_half_an_overwrite() {
    check(300, &[Fault::ReadWithoutRange, Fault::ReleaseAtSubmission], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        // Two extents, so that the write needs two requests.
        write(&file, 1, 2, 0);
        write(&volume.create_direct("/g").unwrap(), 9, 64, 0);
        write(&file, 1, 2, 4096);
        write(&file, 1, 6, 1024);
        race(
            &file,
            |f| write(f, 2, 8, 0),
            |f| {
                let seen = sectors(&read(f, 8, 0));
                assert!(seen.iter().all(|byte| *byte == seen[0]), "half of a write is seen");
            },
        );
    });
}

#[test]
fn blocks_under_a_read_are_not_reused() {
    check(40, &[Fault::ReadWithoutRange], |image| {
        let volume = volume(image);
        let (old, new) = (volume.create_direct("/old").unwrap(), volume.create_direct("/new").unwrap());
        // More blocks than the reserve for metadata, which may be all that the other file gets.
        write(&old, 1, 240, 0);
        fill_up(&volume);
        volume.sync().unwrap();
        let reuse = {
            let volume = volume.clone();
            move |f: &parext4::DirectFile| {
                f.set_len(0).unwrap();
                volume.sync().unwrap();
                write(&new, 2, 200, 0);
            }
        };
        race(&old, reuse, |f| {
            let seen = sectors(&read(f, 240, 0));
            assert!(seen.iter().all(|&byte| byte == 1), "another file's data is read");
        });
    });
}

/// Makes a file of one sector whose block holds stale bytes after it, as other implementations may
/// leave them.
fn with_rubbish_behind(image: &parext4::MemDevice) -> parext4::Volume {
    let device = Arc::new(image.fork());
    let volume = open(Arc::clone(&device));
    let file = volume.create_direct("/f").unwrap();
    write(&file, 1, 1, 0);
    let at = file.device_range(0).unwrap().unwrap().start;
    drop(file);
    volume.close().unwrap();
    device.write_at(at + SECTOR as u64, &[IoSlice::new(&[STALE; SECTOR])]).unwrap();
    open(device)
}

#[test]
fn a_file_grows_over_zeros() {
    check(200, &[Fault::TailNotZeroed, Fault::ZeroTailWithoutRange], |image| {
        let volume = with_rubbish_behind(image);
        let file = volume.direct_file("/f").unwrap();
        race(&file, |f| write(f, 2, 1, 2048), |f| write(f, 3, 1, 0));
        assert_eq!(sectors(&read(&file, 6, 0)), [3, 0, 0, 0, 2]);
    });
    check(200, &[Fault::TailNotZeroed, Fault::ZeroTailWithoutRange], |image| {
        let volume = with_rubbish_behind(image);
        let file = volume.direct_file("/f").unwrap();
        race(&file, |f| f.allocate(2048..3072, FileSize::Extend).unwrap(), |f| write(f, 3, 1, 0));
        assert_eq!(sectors(&read(&file, 6, 0)), [3, 0, 0, 0, 0, 0]);
    });
}

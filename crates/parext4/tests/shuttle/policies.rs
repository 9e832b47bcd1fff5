//! The policies that lock whole files.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::models::with_no_frame_left;
use parext4::server::{PageFault, ServerFile};
use parext4::{DirectFile, FileSize, Policy, ResearchOptions, Volume};

use super::support::*;
use testkit::volume::DirectFiles as _;

#[test]
fn writes_that_share_the_file_convert_the_same_blocks() {
    check(300, &[], |image| {
        let device = Arc::new(image.fork());
        let volume = open_under(Arc::clone(&device), Policy::SharedOverwrite);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..4096, FileSize::Extend).unwrap();
        race(&file, |f| write(f, 1, 6, 0), |f| write(f, 2, 6, 1024));
        drop(file);
        volume.close().unwrap();
        // Unordered where they overlap, but each sector is whole.
        let seen = read(&open(device).direct_file("/f").unwrap(), 8, 0);
        for (number, sector) in seen.chunks(SECTOR).enumerate() {
            let by = |byte: u8| sector.iter().all(|b| *b == byte);
            assert!((number < 6 && by(1)) || (number >= 2 && by(2)), "sector {number} is of no writer");
        }
    });
}

#[test]
fn two_writers_initialise_one_block_alone() {
    for policy in [Policy::Exclusive, Policy::SharedOverwrite] {
        check(150, &[], move |image| {
            let volume = open_under(Arc::new(image.fork()), policy);
            let file = volume.create_direct("/f").unwrap();
            file.allocate(0..1024, FileSize::Extend).unwrap();
            race(&file, |f| write(f, 1, 1, 0), |f| write(f, 2, 1, 512));
            assert_eq!(read(&file, 2, 0), [[1; SECTOR], [2; SECTOR]].concat());
        });
    }
}

#[test]
fn a_truncation_waits_for_writes_that_share_the_file() {
    check(150, &[], |image| {
        let volume = open_under(Arc::new(image.fork()), Policy::SharedOverwrite);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 8, 0);
        race(&file, |f| write(f, 2, 4, 2048), |f| f.set_len(1024).unwrap());
        match file.size() {
            1024 => assert_eq!(read(&file, 8, 0), [1; 1024]),
            4096 => assert_eq!(read(&file, 8, 0), [[1; 1024], [0; 1024], [2; 1024], [2; 1024]].concat()),
            size => panic!("size {size}"),
        }
    });
}

/// Under this policy a reader's range keeps no writer away.
#[test]
fn filling_a_page_spares_dirty_pages_held_by_a_writer() {
    // The dirty-page limit of the smallest cache.
    const PAGES: u64 = 16;
    check_stopping(100, &[Fault::WriteBackWithoutRange], |image| {
        let options =
            options().cache_bytes(0).research(ResearchOptions::new().policy(Policy::SharedOverwrite));
        let volume = Volume::open_device(Arc::new(image.fork()), &options).unwrap();
        let file = volume.create_direct("/f").unwrap();
        file.set_len((PAGES + 1) * 4096).unwrap();
        let buffered = |f: &DirectFile| f.buffered().unwrap();
        for page in 0..PAGES {
            buffered(&file).write_all_at(&[1; 4096], page * 4096).unwrap();
        }
        with_no_frame_left(&volume, || {
            race(
                &file,
                move |f| buffered(f).write_all_at(&[2; SECTOR], 0).unwrap(),
                move |f| buffered(f).fault(PAGES * 4096, PageFault::Load).unwrap(),
            );
        });
        // Read past the cache, after the dirty pages were written back.
        assert_eq!(read(&file, 1, 0), [2; SECTOR], "a write is not written back");
    });
}

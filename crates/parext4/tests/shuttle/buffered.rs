//! Buffered I/O against itself, direct I/O, truncation, syncs and crashes.

use std::sync::{Arc, Mutex};

use parext4::fault::Fault;
use parext4::models::{leave_blocks, unlist_if_clean};
use parext4::{DirectFile, Error, File, FileSize, SplitAt};

use super::support::*;
use testkit::volume::DirectFiles as _;

const PAGE: usize = 4096;

fn buffered(file: &DirectFile) -> File {
    file.buffered().unwrap()
}

fn write_cached(file: &DirectFile, byte: u8, sectors: usize, offset: u64) {
    buffered(file).write_all_at(&vec![byte; sectors * SECTOR], offset).unwrap();
}

fn read_cached(file: &DirectFile, sectors: usize, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; sectors * SECTOR];
    let len = buffered(file).read_at(&mut bytes, offset).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn a_direct_write_races_with_a_page_being_filled() {
    check(200, &[Fault::PagesOutsideRange, Fault::PagesNotDiscarded], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 8, 0);
        drop(buffered(&file));
        // The read is of other bytes of the same page.
        race(&file, |f| write(f, 2, 1, 2048), |f| drop(read_cached(f, 1, 0)));
        assert_eq!(sectors(&read_cached(&file, 8, 0)), [1, 1, 1, 1, 2, 1, 1, 1]);
    });
}

#[test]
fn a_truncation_races_with_a_page_being_filled() {
    check(200, &[Fault::PagesOutsideRange], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 8, 0);
        drop(buffered(&file));
        let later = |f: &DirectFile| {
            yield_randomly(60);
            drop(read_cached(f, 1, 0));
        };
        race(&file, |f| f.set_len(2560).unwrap(), later);
        // The file grows, and no operation accesses that page.
        write_cached(&file, 2, 1, 8192);
        assert_eq!(sectors(&read_cached(&file, 8, 0)), [1, 1, 1, 1, 1, 0, 0, 0]);
    });
}

#[test]
fn a_page_is_clean_when_the_map_shows_its_data() {
    check(200, &[Fault::CleanBeforeConversion], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write_cached(&file, 7, 4, 0);
        race(
            &file,
            |f| buffered(f).sync_data().unwrap(),
            |f| {
                // In most schedules the other thread has pinned the page by then.
                yield_randomly(60);
                assert_eq!(sectors(&read(f, 4, 0)), [7; 4], "direct reads see the data in memory");
            },
        );
    });
}

#[test]
fn buffered_reads_never_see_half_a_write() {
    check(200, &[Fault::ReadWithoutRange], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        let near = (PAGE - 2 * SECTOR) as u64;
        write_cached(&file, 1, 16, 0);
        race(
            &file,
            move |f| write_cached(f, 2, 4, near),
            move |f| {
                let seen = sectors(&read_cached(f, 4, near));
                assert!(seen == [1; 4] || seen == [2; 4], "half of a write is seen: {seen:?}");
            },
        );
        assert_eq!(sectors(&read(&file, 4, near)), [2; 4]);
    });
}

#[test]
fn writers_of_one_page_keep_out_of_each_others_bytes() {
    check(200, &[], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 9, 8, 0);
        drop(buffered(&file));
        let third = spawn(&file, |f| write(f, 3, 2, 2048));
        race(&file, |f| write_cached(f, 1, 1, 512), |f| write_cached(f, 2, 1, 1024));
        third.join().unwrap();
        let want = [9, 1, 2, 9, 3, 3, 9, 9];
        assert_eq!(sectors(&read_cached(&file, 8, 0)), want);
        assert_eq!(sectors(&read(&file, 8, 0)), want);
    });
}

/// An operation that zeroes a range must start over if the file was truncated meanwhile.
#[test]
fn a_dirty_page_stays_until_it_is_zeroed() {
    check(200, &[Fault::DroppedUnwritten], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 16, 0);
        write_cached(&file, 2, 1, 0);
        let reader = spawn(&file, |f| {
            yield_randomly(100);
            let seen = sectors(&read(f, 1, 0));
            assert!(seen == [2] || seen == [0], "neither what was written nor zeros: {seen:?}");
        });
        race(&file, |f| f.zero_range(0..8192, FileSize::Extend).unwrap(), |f| f.set_len(4096).unwrap());
        reader.join().unwrap();
        assert_eq!(sectors(&read(&file, 1, 0)), [0]);
    });
}

#[test]
fn accepted_data_has_its_space_reserved() {
    check(100, &[Fault::DelayNothing], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 9, 2, 0);
        write_cached(&file, 2, 2, 4096);
        // Other files use up all remaining blocks, including the reserve for metadata.
        leave_blocks(&volume, -1000);
        let sync = |f: &DirectFile| buffered(f).sync_data().expect("accepted data can be written back");
        race(&file, sync, |f| assert_eq!(sectors(&read_cached(f, 2, 4096)), [2, 2]));
    });
}

#[test]
fn a_failed_write_leaves_no_data_past_the_end() {
    check(100, &[Fault::FailedWriteNotDiscarded], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write_cached(&file, 9, 1, 0);
        // Enough space for the first page, not for the second.
        leave_blocks(&volume, 5);
        let fails = |f: &DirectFile| {
            let result = buffered(f).write_all_at(&[1; 15 * SECTOR], SECTOR as u64);
            assert!(matches!(result, Err(Error::NoSpace)), "{result:?}");
        };
        race(&file, fails, |f| {
            let seen = sectors(&read_cached(f, 8, 0));
            assert_eq!(seen, [9], "data of a refused write is visible");
        });
        // The file grows, and no operation accesses that page.
        write_cached(&file, 2, 1, 2 * PAGE as u64);
        assert_eq!(sectors(&read_cached(&file, 8, 0)), [9, 0, 0, 0, 0, 0, 0, 0]);
    });
}

#[test]
fn reserved_space_is_released() {
    check(100, &[Fault::DelayLeaked], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        let free = volume.space().free_blocks;
        race(&file, |f| write_cached(f, 1, 8, 1024), |f| f.set_len(2048).unwrap());
        file.set_len(0).unwrap();
        volume.sync().unwrap();
        assert_eq!(volume.space().free_blocks, free);
    });
}

/// A page that cannot be written back becomes dirty again before threads that wait for its
/// write-back see the error.
#[test]
fn a_sync_that_waits_for_a_write_back_reports_its_failure() {
    check(200, &[Fault::FailureUnseen], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..16 * BLOCK as u64, FileSize::Extend).unwrap();
        // The root of the tree is full, so the next split of an extent needs a block.
        write_block(&file, 1, 2);
        write_block(&file, 1, 15);
        write_cached(&file, 7, 2, 8 * BLOCK as u64);
        leave_blocks(&volume, i32::MIN / 2);
        let sync = |f: &DirectFile| {
            let synced = f.sync_data();
            assert!(matches!(synced, Err(Error::NoSpace)), "{synced:?}");
        };
        let later = move |f: &DirectFile| {
            // In most schedules the other thread has pinned the page by then.
            yield_randomly(60);
            sync(f);
        };
        race(&file, sync, later);
        assert_eq!(sectors(&read_cached(&file, 2, 8 * BLOCK as u64)), [7, 7]);
    });
}

/// A write-back that joins two dirty pages also writes the clean page between them, with the
/// contents from before the direct write.
#[test]
fn a_joined_write_back_races_with_a_direct_write_of_a_clean_page() {
    check(200, &[Fault::RewriteNotMarked], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 24, 0);
        assert_eq!(sectors(&read_cached(&file, 1, 4096)), [1]);
        write_cached(&file, 2, 8, 0);
        write_cached(&file, 2, 8, 8192);
        let later = |f: &DirectFile| {
            yield_randomly(60);
            write(f, 3, 8, 4096);
        };
        race(&file, |f| buffered(f).sync_data().unwrap(), later);
        assert_eq!(sectors(&read(&file, 8, 0)), [2; 8]);
        assert_eq!(sectors(&read(&file, 8, 4096)), [3; 8]);
        assert_eq!(sectors(&read(&file, 8, 8192)), [2; 8]);
    });
}

#[test]
fn pages_of_a_batch_are_clean_when_its_requests_are_done() {
    check(200, &[Fault::BatchUnawaited], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 64, 0);
        write_cached(&file, 2, 8, 0);
        write_cached(&file, 2, 8, 6 * 4096);
        let read_both = |f: &DirectFile| {
            yield_randomly(60);
            for page in [6, 0] {
                assert_eq!(sectors(&read(f, 8, page * 4096)), [2; 8], "page {page}");
            }
        };
        race(&file, |f| buffered(f).sync_data().unwrap(), read_both);
    });
}

#[test]
fn a_sync_waits_for_write_back_by_another_thread() {
    check(200, &[Fault::SyncUnwaited], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        write_cached(&file, 7, 2, 0);
        let seen = Arc::new(Mutex::new(None));
        let crash = {
            let (device, seen) = (Arc::clone(&device), Arc::clone(&seen));
            move |f: &DirectFile| {
                // In most schedules the other thread has pinned the page by then.
                yield_randomly(60);
                buffered(f).sync_data().unwrap();
                *seen.lock().unwrap() = Some(device.fork());
            }
        };
        race(&file, crash, |f| buffered(f).sync_data().unwrap());
        let crashed = seen.lock().unwrap().take().unwrap();
        let after = open_quiet(Arc::new(crashed), SplitAt::default()).direct_file("/f").unwrap();
        assert_eq!(sectors(&read(&after, 4, 0)), [7, 7]);
    });
}

/// The thread that made the page dirty first may not have listed its file yet.
#[test]
fn a_sync_of_all_covers_files_written_by_other_threads() {
    check_stopping(300, &[Fault::ListedAhead, Fault::ListedByOthers], |image| {
        let device = Arc::new(image.fork());
        let volume = open_quiet(Arc::clone(&device), SplitAt::default());
        let file = volume.create_direct("/f").unwrap();
        write_cached(&file, 9, 4, 0);
        volume.sync().unwrap();
        let seen = Arc::new(Mutex::new(None));
        let crash = {
            let (device, seen) = (Arc::clone(&device), Arc::clone(&seen));
            move |f: &DirectFile| {
                write_cached(f, 7, 2, BLOCK as u64);
                volume.sync().unwrap();
                *seen.lock().unwrap() = Some(device.fork());
            }
        };
        race(&file, crash, |f| write_cached(f, 5, 2, 0));
        let crashed = seen.lock().unwrap().take().unwrap();
        let after = open_quiet(Arc::new(crashed), SplitAt::default()).direct_file("/f").unwrap();
        assert_eq!(sectors(&read(&after, 4, 0))[2..], [7, 7]);
    });
}

/// A thread that has written the file back checks again and again whether it can leave the list,
/// which it has left already. A writer dirties a page between two steps of a check.
#[test]
fn a_sync_of_all_covers_a_file_that_left_the_list() {
    check(300, &[Fault::ListedByChecks], |image| {
        let device = Arc::new(image.fork());
        let volume = Arc::new(open_quiet(Arc::clone(&device), SplitAt::default()));
        let file = volume.create_direct("/f").unwrap();
        write_cached(&file, 1, 4, 0);
        volume.sync().unwrap();
        race(&file, |f| (0..60).for_each(|_| unlist_if_clean(f)), |f| write_cached(f, 2, 4, 0));
        volume.sync().unwrap();
        volume.abort().unwrap();
        let (_volume, after) = after_crash(&device, "/f");
        assert_eq!(sectors(&read(&after, 4, 0)), [2; 4], "the sync missed a dirty page");
    });
}

#[test]
fn the_size_on_the_device_covers_only_written_data() {
    check(100, &[Fault::DiskSizeFirst], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let (file, other) = (volume.create_direct("/f").unwrap(), volume.create_direct("/g").unwrap());
        volume.sync().unwrap();
        let seen = Arc::new(Mutex::new(None));
        let crash = {
            let (device, seen) = (Arc::clone(&device), Arc::clone(&seen));
            move |f: &DirectFile| {
                yield_randomly(40);
                // A commit of the same inode, for another reason.
                f.allocate(0..2048, FileSize::Keep).unwrap();
                write(&other, 1, 2, 0);
                other.sync_all().unwrap();
                *seen.lock().unwrap() = Some(device.fork());
            }
        };
        race(&file, |f| write_cached(f, 7, 2, 0), crash);
        let crashed = seen.lock().unwrap().take().unwrap();
        let after = open_quiet(Arc::new(crashed), SplitAt::default()).direct_file("/f").unwrap();
        let seen = sectors(&read(&after, 4, 0));
        assert!(seen.is_empty() || seen == [7, 7], "{seen:?}");
    });
}

//! Commits against operations that they wait for, and against times of writes that the next commit
//! includes.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::models::while_no_commit;
use parext4::{DirectFile, FileSize, SetAttributes, SplitAt, Timestamp};

use shuttle::sync::atomic::{AtomicBool, Ordering};

use super::support::*;
use testkit::volume::DirectFiles as _;

#[test]
fn no_completion_waits_for_a_commit_that_waits_for_it() {
    check(200, &[Fault::HandleInHandle], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..4096, FileSize::Extend).unwrap();
        let syncer = spawn(&file, |f| {
            yield_randomly(200);
            f.sync_data().unwrap();
        });
        race(&file, |f| write_block(f, 1, 0), |f| write_block(f, 1, 2));
        syncer.join().unwrap();
        assert_eq!(blocks_of(&file, 4), [1, 0, 1, 0]);
    });
}

#[test]
fn a_sync_waits_for_no_commit_after_its_own() {
    check(200, &[Fault::WaitForTheLog], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        let synced = Arc::new(AtomicBool::new(false));
        let syncer = {
            let synced = Arc::clone(&synced);
            move |f: &DirectFile| {
                f.sync_data().unwrap();
                synced.store(true, Ordering::SeqCst);
            }
        };
        let committer = move |f: &DirectFile| {
            f.sync_data().unwrap();
            // The commit after the one that both threads need.
            while_no_commit(&volume, || {
                while !synced.load(Ordering::SeqCst) {
                    shuttle::thread::yield_now();
                }
            });
        };
        race(&file, syncer, committer);
    });
}

#[test]
fn times_of_writes_are_in_the_next_commit() {
    check(300, &[Fault::ListedAfterCommit], |image| {
        let device = Arc::new(image.fork());
        let volume = open_quiet(Arc::clone(&device), SplitAt::default());
        let file = volume.create_direct("/f").unwrap();
        write_block(&file, 1, 0);
        volume.sync().unwrap();
        // From now on the times of its writes wait for a commit.
        write_block(&file, 2, 0);
        let commit = {
            let volume = volume.clone();
            move |_: &parext4::DirectFile| volume.sync().unwrap()
        };
        let late = |f: &DirectFile| {
            yield_randomly(100);
            write_block(f, 3, 0);
        };
        race(&file, late, commit);
        let modified: Timestamp = volume.metadata("/f").unwrap().mtime;
        volume.sync().unwrap();
        let (after, _file) = after_crash(&device, "/f");
        assert_eq!(after.metadata("/f").unwrap().mtime, modified, "the time of a write is lost");
    });
}

#[test]
fn a_sync_of_the_volume_includes_the_times_of_earlier_writes() {
    check(300, &[Fault::TimesLeftToCommit], |image| {
        let device = Arc::new(image.fork());
        let volume = open_quiet(Arc::clone(&device), SplitAt::default());
        let file = volume.create_direct("/f").unwrap();
        let other = volume.create_direct("/other").unwrap();
        write_block(&file, 1, 0);
        volume.sync().unwrap();
        let set = SetAttributes::new().permissions(0o600);
        other.inode_ref().set_attributes(&set).unwrap();
        let writer = move |f: &DirectFile| {
            yield_randomly(100);
            write_block(f, 2, 0);
            let modified: Timestamp = f.inode_ref().metadata().mtime;
            volume.sync().unwrap();
            let (after, _file) = after_crash(&device, "/f");
            assert_eq!(after.metadata("/f").unwrap().mtime, modified, "the time of a write is lost");
        };
        race(&file, writer, move |_: &DirectFile| other.sync_all().unwrap());
    });
}

#[test]
fn the_time_of_an_overwrite_is_in_the_next_commit() {
    check(300, &[Fault::TimesUnlisted], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 2, 0);
        volume.sync().unwrap();
        // The time of the overwrite waits until it is set explicitly.
        write(&file, 2, 2, 0);
        let long_ago = Timestamp { seconds: 5, nanoseconds: 0 };
        let set = SetAttributes::new().mtime(long_ago);
        file.inode_ref().set_attributes(&set).unwrap();
        assert_eq!(file.inode_ref().metadata().mtime, long_ago);
        let syncer = volume.clone();
        race(&file, |f| write(f, 3, 2, 0), move |_: &DirectFile| syncer.sync().unwrap());
        volume.sync().unwrap();
        let mtime = file.inode_ref().metadata().mtime;
        assert_ne!(mtime, long_ago);
        let after = open(Arc::new(device.fork()));
        assert_eq!(after.metadata("/f").unwrap().mtime, mtime, "the time of a write is lost");
    });
}

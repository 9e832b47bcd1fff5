//! Crashes of a device that loses writes that were not flushed.

use std::sync::{Arc, Mutex};

use parext4::fault::Fault;
use parext4::{DirectFile, FileSize, SplitAt};

use super::support::*;
use testkit::volume::DirectFiles as _;

#[test]
fn no_crash_reveals_unwritten_data() {
    check(300, &[Fault::DataUnflushed], |image| {
        let device = LossyDevice::new(image);
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..4096, FileSize::Extend).unwrap();
        file.sync_all().unwrap();
        let left = device.crash_during(|| {
            let append = |f: &DirectFile| {
                f.append(&[1; BLOCK]).unwrap();
                f.sync_data().unwrap();
            };
            race(&file, |f| write(f, 1, 3, 512), append);
        });
        let (_volume, after) = after_crash(&left, "/f");
        let seen = sectors(&read(&after, 10, 0));
        assert!(
            seen.iter().all(|&byte| byte <= 1),
            "stale bytes of the device are visible after a crash: {seen:?}"
        );
        assert!(
            seen.len() == 8 || seen[8..] == [1, 1],
            "the size covers blocks that are not written: {seen:?}"
        );
    });
}

#[test]
fn synced_data_survives_any_crash() {
    check(100, &[Fault::CommitUnflushed], |image| {
        let device = LossyDevice::new(image);
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        let one = |byte: u8| {
            move |f: &DirectFile| {
                f.append(&[byte; BLOCK]).unwrap();
                f.sync_data().unwrap();
            }
        };
        race(&file, one(1), one(1));
        let (_volume, after) = after_crash(&device.crash(), "/f");
        assert_eq!(blocks_of(&after, 4), [1, 1]);
    });
}

#[test]
fn a_sync_that_shares_a_commit_flushes_its_own_data() {
    check_stopping(100, &[Fault::ShareEveryFlush], |image| {
        let device = LossyDevice::new(image);
        let volume = open_quiet(Arc::clone(&device), SplitAt::default());
        let file = volume.create_direct("/f").unwrap();
        write_block(&file, 1, 0);
        file.sync_all().unwrap();
        file.append(&[1; BLOCK]).unwrap();
        // The commit of the append may have flushed the device before the overwrite.
        let overwrite = |f: &DirectFile| {
            write_block(f, 2, 0);
            f.sync_data().unwrap();
        };
        race(&file, |f| f.sync_data().unwrap(), overwrite);
        let (_volume, after) = after_crash(&device.crash(), "/f");
        assert_eq!(blocks_of(&after, 4), [2, 1]);
    });
}

#[test]
fn a_close_races_with_a_sync() {
    check(150, &[], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        let synced = Arc::new(Mutex::new(false));
        let writer = {
            let synced = Arc::clone(&synced);
            move |f: &DirectFile| {
                let done = f.append(&[7; SECTOR]).is_ok() && f.sync_data().is_ok();
                *synced.lock().unwrap() = done;
            }
        };
        race(&file, writer, move |_: &DirectFile| volume.close().unwrap());
        let after = open(device).direct_file("/f").unwrap();
        assert!(after.size() == SECTOR as u64 || !*synced.lock().unwrap(), "synced data is lost");
    });
}

#[test]
fn freed_blocks_wait_for_their_commit() {
    check(20, &[Fault::ReuseAtOnce], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let old = volume.create_direct("/old").unwrap();
        write(&old, 1, 64, 0);
        let new = volume.create_direct("/new").unwrap();
        volume.sync().unwrap();
        // The truncation is not durable, so after a crash the blocks must still hold the old file's
        // data.
        old.set_len(0).unwrap();
        for at in 0..64 {
            write(&new, 2, 64, at * 64 * SECTOR as u64);
        }
        let (_volume, after) = after_crash(&device, "/old");
        let seen = read(&after, 64, 0);
        assert!(seen.iter().all(|byte| *byte == 1), "another file's data is visible after a crash");
    });
}

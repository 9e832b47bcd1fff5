//! Checkpoints beside commits.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::{DirectFile, EmptiedLog, Volume, models};

use super::support::*;
use testkit::volume::DirectFiles as _;

/// Runs one round of the checkpoint thread.
fn checkpoint(volume: &Volume) -> impl FnOnce(&DirectFile) + Send + 'static {
    let volume = volume.clone();
    move |_| models::checkpoint(&volume).unwrap()
}

#[test]
fn synced_data_survives_a_crash_during_a_checkpoint() {
    check(100, &[Fault::TailBeforeHome], |image| {
        let device = LossyDevice::new(image);
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        write_block(&file, 1, 0);
        volume.sync().unwrap();
        let left = device.crash_during(|| {
            let append = |f: &DirectFile| {
                write_block(f, 2, 1);
                f.sync_data().unwrap();
            };
            race(&file, append, checkpoint(&volume));
        });
        let (_volume, after) = after_crash(&left, "/f");
        assert_eq!(blocks_of(&after, 1), [1]);
    });
}

#[test]
fn synced_data_survives_a_crash_after_the_log_was_emptied() {
    check(100, &[Fault::TailBeforeHome, Fault::EmptyLogUnrecorded], |image| {
        let device = LossyDevice::new(image);
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        let append = |byte: u8| {
            move |f: &DirectFile| {
                f.append(&[byte; BLOCK]).unwrap();
                f.sync_data().unwrap();
            }
        };
        append(1)(&file);
        let emptied = volume.clone();
        let left = device.crash_during(|| {
            let empty = move |_: &DirectFile| emptied.empty_journal(EmptiedLog::Kept).unwrap();
            race(&file, append(1), empty);
            append(1)(&file);
        });
        let (_volume, after) = after_crash(&left, "/f");
        assert_eq!(blocks_of(&after, 1), [1]);
        let (_volume, after) = after_crash(&device.crash(), "/f");
        assert_eq!(blocks_of(&after, 4), [1, 1, 1]);
    });
}

#[test]
fn freed_blocks_wait_for_their_checkpoint() {
    check(50, &[Fault::FreedDuringCheckpoint], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        volume.create_dir("/d", 0o755).unwrap();
        fill_up(&volume);
        volume.sync().unwrap();
        volume.remove_dir("/d").unwrap();
        let reuse = {
            let volume = volume.clone();
            move |f: &DirectFile| {
                volume.sync().unwrap();
                // The file gets the directory's block, because no other block is free.
                write_block(f, 1, 0);
            }
        };
        let checkpoint = checkpoint(&volume);
        let later = |f: &DirectFile| {
            // In most schedules the commit is about to free the block by then.
            yield_randomly(200);
            checkpoint(f);
        };
        race(&file, reuse, later);
        assert_eq!(blocks_of(&file, 1), [1]);
    });
}

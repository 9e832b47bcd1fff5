//! Checkpoints beside commits.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::{DirectFile, EmptiedLog, Volume, models};

use super::support::*;

/// What the journal's thread does.
fn checkpoint(volume: &Volume) -> impl FnOnce(&DirectFile) + Send + 'static {
    let volume = volume.clone();
    move |_| models::checkpoint(&volume).unwrap()
}

#[test]
fn what_was_synced_survives_a_crash_of_a_checkpoint() {
    check(100, &[Fault::TailBeforeHome], |image| {
        let device = Losing::new(image);
        let volume = open(Arc::clone(&device));
        let file = volume.create("/f", 0o644).unwrap();
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
fn what_was_synced_survives_a_crash_after_the_log_was_emptied() {
    check(100, &[Fault::TailBeforeHome, Fault::EmptyLogUnseen], |image| {
        let device = Losing::new(image);
        let volume = open(Arc::clone(&device));
        let file = volume.create("/f", 0o644).unwrap();
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
fn freed_blocks_wait_until_they_are_home() {
    check(50, &[Fault::FreedOnItsWayHome], |image| {
        let volume = volume(image);
        let file = volume.create("/f", 0o644).unwrap();
        volume.mkdir("/d", 0o755).unwrap();
        fill_up(&volume);
        volume.sync().unwrap();
        volume.remove_dir("/d").unwrap();
        let reuse = {
            let volume = volume.clone();
            move |f: &DirectFile| {
                volume.sync().unwrap();
                // It gets the directory's block: there is no other.
                write_block(f, 1, 0);
            }
        };
        let checkpoint = checkpoint(&volume);
        let later = |f: &DirectFile| {
            // Mostly the commit is about to free the block by then.
            dawdle(200);
            checkpoint(f);
        };
        race(&file, reuse, later);
        assert_eq!(blocks_of(&file, 1), [1]);
    });
}

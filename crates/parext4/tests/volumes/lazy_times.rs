//! Times of overwrites, which wait for a transaction, after a sync of the volume and a crash.

use std::sync::Arc;

use parext4::{DirectFile, SetAttributes, Timestamp, Volume};

use testkit::volume::{DirectFiles as _, Shape, untimed};

const BLOCK: usize = 1024;
/// Each inode has a block of its own in the inode table.
const SHAPE: Shape =
    Shape { inode_size: BLOCK as u16, inode_ratio: Some(4096), ..Shape::new(8, BLOCK as u32, true) };
/// More inodes than one transaction has blocks: a transaction has a quarter of the log, of 1024
/// blocks.
const FILES: usize = 600;
const LONG_AGO: Timestamp = Timestamp { seconds: 5, nanoseconds: 0 };

fn path(nth: usize) -> String {
    format!("/{nth}")
}

/// Creates a file of one block with an old time.
fn create(volume: &Volume, nth: usize) -> DirectFile {
    let file = volume.create_direct(path(nth)).expect("create");
    file.write_all_at(&[1; BLOCK], 0).expect("the file is extended");
    file.inode_ref().set_attributes(&SetAttributes::new().mtime(LONG_AGO)).expect("set_attributes");
    file
}

/// Overwrites files, calls `commit`, and returns the number of files whose times a crash then
/// loses.
fn lost_after(commit: impl Fn(&Volume)) -> usize {
    let device = Arc::new(SHAPE.make());
    let volume = Volume::open_device(Arc::clone(&device) as _, &untimed()).expect("the volume opens");
    let files: Vec<_> = (0..FILES).map(|nth| create(&volume, nth)).collect();
    volume.sync().expect("sync");
    for file in &files {
        file.write_all_at(&[2; BLOCK], 0).expect("the file is overwritten");
    }
    commit(&volume);
    let after = Volume::open_device(Arc::new(device.fork()), &untimed()).expect("the volume opens");
    let is_old = |nth: &usize| after.metadata(path(*nth)).expect("metadata").mtime == LONG_AGO;
    (0..FILES).filter(is_old).count()
}

#[test]
fn a_sync_makes_more_times_durable_than_fit_one_transaction() {
    assert_eq!(lost_after(|volume| volume.sync().expect("sync")), 0);
}

#[test]
fn a_volume_that_is_shut_down_keeps_more_times_than_fit_one_transaction() {
    assert_eq!(lost_after(|volume| volume.abort().expect("abort")), 0);
}

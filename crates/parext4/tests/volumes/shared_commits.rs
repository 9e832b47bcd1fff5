//! Syncs that share a commit share its flushes of the device.

use std::sync::Arc;
use std::thread::{sleep, spawn};
use std::time::Duration;

use parext4::device::{Event, RecordingDevice};
use parext4::{DirectFile, OpenOptions, SetAttributes, Volume};

use testkit::device::GatedDevice;
use testkit::volume::{Shape, untimed};

const SHAPE: Shape = Shape::new(16, 4096, true);

fn set_mode(file: &DirectFile, mode: u16) {
    let set = SetAttributes::new().permissions(mode);
    file.node().set_attributes(&set).expect("set_attributes");
}

#[test]
fn a_sync_that_shares_a_commit_does_not_flush_again() {
    let recording = Arc::new(RecordingDevice::new(Arc::new(SHAPE.make())));
    let device = Arc::new(GatedDevice::new(Arc::clone(&recording) as _));
    let volume = Volume::open_device(Arc::clone(&device) as _, &untimed()).expect("the volume opens");
    let options = OpenOptions::read_write().create_new(true).mode(0);
    let files = ["/a", "/b", "/c"].map(|path| volume.open_direct(path, &options).expect("create"));
    volume.sync().expect("sync");
    let flushes = || recording.log().iter().filter(|event| matches!(event, Event::Flush { .. })).count();
    let sync = |file: &DirectFile| {
        let file = file.clone();
        spawn(move || file.sync_all().expect("sync_all"))
    };
    // Two syncs that both wait for the running commit share the next one.
    let flushes_of_three_syncs = |mode: u16, wait: Duration| {
        let before = flushes();
        set_mode(&files[0], mode);
        device.catch_writes(1);
        let first = sync(&files[0]);
        device.wait_for(1);
        files[1..].iter().for_each(|file| set_mode(file, mode));
        let others = [sync(&files[1]), sync(&files[2])];
        sleep(wait);
        device.release_first();
        [first].into_iter().chain(others).for_each(|thread| thread.join().expect("no sync panics"));
        flushes() - before
    };
    // A sync that is late needs a commit or a flush of its own, so each attempt waits longer.
    let counts: Vec<usize> = (1..10)
        .map(|n| flushes_of_three_syncs(n, Duration::from_millis(5 << n)))
        .take_while(|&n| n > 4)
        .collect();
    assert!(counts.len() < 9, "two commits are four flushes: {counts:?}");
}

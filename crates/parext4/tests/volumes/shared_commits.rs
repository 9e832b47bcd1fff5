//! Syncs that share a commit share its flushes of the device, and commits beside changes.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{scope, sleep, spawn, yield_now};
use std::time::Duration;

use parext4::device::{Event, RecordingDevice};
use parext4::{Device, DirectFile, EmptiedLog, OpenOptions, SetAttributes, Volume};

use testkit::device::{GatedDevice, HookedDevice, Hooks};
use testkit::volume::{Shape, assert_no_findings, untimed};

const SHAPE: Shape = Shape::new(16, 4096, true);

fn set_mode(file: &DirectFile, mode: u16) {
    let set = SetAttributes::new().permissions(mode);
    file.inode_ref().set_attributes(&set).expect("set_attributes");
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

/// Has each flush wait until another thread has changed the volume.
#[derive(Debug, Default)]
struct ChangedMeanwhile {
    changes: AtomicU64,
    is_over: AtomicBool,
}

impl Hooks for ChangedMeanwhile {
    fn flush(&self, inner: &dyn Device) -> io::Result<()> {
        let before = self.changes.load(Ordering::SeqCst);
        while self.changes.load(Ordering::SeqCst) < before + 2 && !self.is_over.load(Ordering::SeqCst) {
            yield_now();
        }
        inner.flush()
    }
}

#[test]
fn emptying_the_journal_does_not_wait_for_later_changes() {
    let memory = Arc::new(SHAPE.make());
    let device = Arc::new(HookedDevice::new(Arc::clone(&memory), ChangedMeanwhile::default()));
    let hooks = device.hooks();
    hooks.is_over.store(true, Ordering::SeqCst);
    let volume = Volume::open_device(Arc::clone(&device) as _, &untimed()).expect("the volume opens");
    let file = volume.open_direct("/a", &OpenOptions::read_write().create_new(true)).expect("create");
    hooks.is_over.store(false, Ordering::SeqCst);
    let emptied = scope(|scope| {
        scope.spawn(|| {
            for mode in (0..0o1000).cycle() {
                set_mode(&file, mode);
                hooks.changes.fetch_add(1, Ordering::SeqCst);
                if hooks.is_over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let (send, receive) = mpsc::channel();
        let volume = &volume;
        scope.spawn(move || send.send(volume.empty_journal(EmptiedLog::Kept)));
        let emptied = receive.recv_timeout(Duration::from_secs(20));
        hooks.is_over.store(true, Ordering::SeqCst);
        emptied
    });
    emptied.expect("it waits for later changes").expect("empty_journal");
    drop(file);
    volume.close().expect("close");
    assert_no_findings(&*memory, "emptied");
}

//! Replays of a journal beside the updates of the owner's thread.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};

use parext4::{Device, Error, MemDevice, Volume, VolumeOptions, needs_recovery};
use testkit::device::{HookedDevice, Hooks};

use super::scale::*;

fn options() -> VolumeOptions {
    VolumeOptions::new().mmp(short()).commit_interval(None)
}

/// Returns a volume whose journal must be replayed.
fn crashed() -> Arc<MemDevice> {
    let device = Arc::new(volume());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options()).unwrap();
    volume.create_dir("/dir", 0o755).unwrap();
    volume.abort().unwrap();
    device
}

/// Loses the blocks of the log that are written home. Reports the loss once, as Linux does: late to
/// another thread that flushes at the same time, otherwise to `replaying`.
#[derive(Debug)]
struct ReportsOnce {
    replaying: ThreadId,
    /// Offset of the block of multi-mount protection.
    protection: u64,
    step: Mutex<Step>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Claim,
    Written,
    Flushing,
    /// Another thread flushes, too, and gets the error.
    FlushingTwice,
    FlushedAgain,
}

impl ReportsOnce {
    fn set(&self, step: Step) {
        *self.step.lock().unwrap() = step;
        self.changed.notify_all();
    }

    /// Waits for `step`, but at most for 20 updates of the owner's thread. Returns true if it was
    /// reached.
    fn wait_for(&self, step: Step) -> bool {
        let now = self.step.lock().unwrap();
        let (now, _) = self.changed.wait_timeout_while(now, 20 * SECOND, |now| *now < step).unwrap();
        *now >= step
    }
}

impl Hooks for ReportsOnce {
    fn write_at(&self, inner: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        // A thread of the device's queue may write. The owner's thread writes only the block of the
        // protection.
        if offset != self.protection {
            let mut step = self.step.lock().unwrap();
            *step = Step::Written.max(*step);
        }
        inner.write_at(offset, bufs)
    }

    fn flush(&self, _: &dyn Device) -> io::Result<()> {
        let step = *self.step.lock().unwrap();
        let is_replay = thread::current().id() == self.replaying;
        let fails = match step {
            Step::Written if is_replay => {
                self.set(Step::Flushing);
                !self.wait_for(Step::FlushingTwice)
            }
            Step::Flushing if !is_replay => {
                self.set(Step::FlushingTwice);
                self.wait_for(Step::FlushedAgain);
                true
            }
            Step::FlushingTwice => {
                self.set(Step::FlushedAgain);
                false
            }
            _ => false,
        };
        if fails { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }
}

#[test]
fn a_replay_whose_writes_are_lost_keeps_the_log() {
    let memory = crashed();
    let hooks = ReportsOnce {
        replaying: thread::current().id(),
        protection: place(&*memory).0,
        step: Mutex::new(Step::Claim),
        changed: Condvar::new(),
    };
    let device = Arc::new(HookedDevice::new(Arc::clone(&memory), hooks));
    let replayed = options().replay_journal(device);
    assert!(matches!(replayed, Err(Error::Device { .. })), "{replayed:?}");
    let again = options().replay_journal(memory).unwrap();
    assert!(again.transactions > 0, "the log is empty, although blocks of the replay were lost");
}

/// Has another machine take the volume over while the replay flushes the superblock, its last
/// write.
#[derive(Debug)]
struct TakenOver {
    replaying: ThreadId,
    is_last: AtomicBool,
}

impl Hooks for TakenOver {
    fn write_at(&self, inner: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if thread::current().id() == self.replaying && offset == 0 {
            self.is_last.store(true, Ordering::SeqCst);
        }
        inner.write_at(offset, bufs)
    }

    fn flush(&self, inner: &dyn Device) -> io::Result<()> {
        if thread::current().id() == self.replaying && self.is_last.load(Ordering::SeqCst) {
            write_as_other(inner, 7);
        }
        inner.flush()
    }
}

#[test]
fn a_replay_that_loses_the_volume_at_its_end_fails() {
    let memory = crashed();
    let hooks = TakenOver { replaying: thread::current().id(), is_last: AtomicBool::new(false) };
    let device = Arc::new(HookedDevice::new(Arc::clone(&memory), hooks));
    let replayed = options().replay_journal(device);
    assert!(matches!(&replayed, Err(Error::Busy(why)) if why.contains("other-node")), "{replayed:?}");
    assert_eq!(state(&*memory).sequence, 7, "the other machine's block stays");
    assert!(!needs_recovery(&*memory).unwrap());
}

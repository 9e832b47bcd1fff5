//! The lease of one owner, without its thread.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use parext4_device::{
    AlignedBuf, Device, FaultDevice, FaultPlan, MemDevice, Op, Queue, Request, Segment, Sharing, WriteGuard,
    forward_device,
};
use parext4_format::mmp::Mmp;

use super::heartbeat::{Heartbeat, Update};
use super::lease::{Lease, LeaseState};
use super::leased_device::LeasedDevice;
use super::location::MmpLocation;
use super::{MmpOptions, MmpUse, read};
use crate::clock::Clock;
use crate::health::Health;
use crate::mkfs::{MkfsOptions, mkfs};
use crate::superblock::read_superblock;

/// Length of a second. The lease lasts for ten.
const SECOND: Duration = Duration::from_millis(100);

/// An owner whose thread is the test.
struct TestOwner {
    mem: Arc<MemDevice>,
    place: MmpLocation,
    lease: Arc<Lease>,
    heartbeat: Heartbeat,
    leased: Arc<dyn Device>,
}

/// Returns the owner of a volume on a device that `wrap` returns. Its lease has ended.
fn owner(wrap: impl FnOnce(Arc<MemDevice>) -> Arc<dyn Device>) -> TestOwner {
    let mem = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*mem, &MkfsOptions::new().mmp(true)).unwrap();
    let place = MmpLocation::of(&read_superblock(&*mem).unwrap(), Clock::system()).unwrap().unwrap();
    let options = MmpOptions::new().second(SECOND);
    let mine = place.mine(&options);
    place.write(&*mem, &mine).unwrap();
    let device = wrap(Arc::clone(&mem));
    let lease = Arc::new(Lease::new(&*device, &place, &options));
    lease.begin(mine);
    let heartbeat = Heartbeat::new(Arc::clone(&device), place.clone(), &options, &lease);
    let leased = Arc::new(LeasedDevice::new(device, &lease));
    TestOwner { mem, place, lease, heartbeat, leased }
}

fn plain(mem: Arc<MemDevice>) -> Arc<dyn Device> {
    mem
}

impl TestOwner {
    fn write(&self) -> io::Result<()> {
        self.leased.write_at(0, &[IoSlice::new(&[0; 512])])
    }

    /// Writes the block as another machine does.
    fn take_over(&self) {
        let found = self.place.read(&*self.mem).unwrap();
        let other = Mmp { sequence: found.sequence ^ 0x1000, ..found };
        self.place.write(&*self.mem, &other).unwrap();
    }
}

#[test]
fn the_block_of_a_volume_that_stopped_between_two_updates_is_cleared_at_close() {
    let owner = owner(plain);
    assert_eq!(owner.heartbeat.update().unwrap(), Update::Written);
    // As the thread does when an update ends after the volume was closed, and before the thread is
    // stopped.
    owner.lease.retire("the volume has stopped");
    owner.heartbeat.close().unwrap();
    assert_eq!(read(&*owner.mem).unwrap().unwrap().usage, MmpUse::Clean);
}

#[test]
fn a_late_write_waits_for_an_update() {
    let owner = owner(plain);
    thread::scope(|scope| {
        let writer = scope.spawn(|| owner.write());
        thread::sleep(SECOND);
        assert!(!writer.is_finished(), "the lease has not begun");
        // A writer that does not run for a second needs another update.
        while !writer.is_finished() {
            assert_eq!(owner.heartbeat.update().unwrap(), Update::Written);
            thread::sleep(SECOND);
        }
        writer.join().unwrap().unwrap();
    });
    thread::sleep(11 * SECOND);
    assert!(matches!(owner.lease.lease_state(), LeaseState::Ended));
    owner.take_over();
    thread::scope(|scope| {
        let writer = scope.spawn(|| owner.write());
        assert_eq!(owner.heartbeat.update().unwrap(), Update::Lost);
        assert!(
            writer
                .join()
                .unwrap()
                .unwrap_err()
                .to_string()
                .contains("another machine has taken the volume over")
        );
    });
    assert!(owner.leased.flush().is_err() && owner.leased.discard(0, 512).is_err());
}

/// Another machine may have read the block before the latest one when it writes its number, and
/// then waits as that block asks.
#[test]
fn a_lease_is_longer_only_after_a_second_slow_update() {
    let owner = owner(plain);
    let late = || {
        assert_eq!(owner.heartbeat.update().unwrap(), Update::Written);
        thread::sleep(11 * SECOND);
        matches!(owner.lease.lease_state(), LeaseState::Ended)
    };
    assert!(late() && late() && late(), "the block of before asks for ten seconds");
    assert!(!late(), "two blocks ask for more");
}

#[test]
fn failed_updates_stop_an_owner_only_when_a_write_needs_one() {
    let owner = owner(plain);
    assert_eq!(owner.heartbeat.update().unwrap(), Update::Written);
    let failing = Heartbeat::new(
        Arc::new(FaultDevice::new(Arc::clone(&owner.mem) as _, FaultPlan::at(1).sticky(true))),
        owner.place.clone(),
        &MmpOptions::new().second(SECOND),
        &owner.lease,
    );
    assert!(failing.update().is_err());
    owner.write().expect("the lease lasts");
    thread::sleep(11 * SECOND);
    thread::scope(|scope| {
        let writer = scope.spawn(|| owner.write());
        while !writer.is_finished() {
            let _ = failing.update();
        }
        assert!(writer.join().unwrap().unwrap_err().to_string().contains("cannot tell"));
    });
}

#[test]
fn a_device_that_connects_again_asks_for_the_owner() {
    let owner = owner(plain);
    assert!(!owner.lease.may_write());
    let mem = Arc::clone(&owner.mem);
    let mut read = |offset, bytes: &mut [u8]| mem.read_at(offset, &mut [io::IoSliceMut::new(bytes)]);
    owner.lease.may_resend(&mut read).unwrap();
    assert!(owner.lease.may_write(), "the block was read");
    let cut_off = owner.lease.may_resend(&mut |_, _| Err(io::ErrorKind::ConnectionReset.into()));
    assert_eq!(cut_off.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    owner.take_over();
    assert_eq!(owner.lease.may_resend(&mut read).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert!(!owner.lease.may_write());
}

/// A device that fails, or that is slow to read.
#[derive(Debug)]
struct Faulty {
    mem: Arc<MemDevice>,
    sharing: Sharing,
    write_fails: AtomicBool,
    flush_fails: AtomicBool,
    error: ErrorKind,
    read_takes: Duration,
    /// The guard that the device asks after each write, as if it had lost the answer and connected
    /// again.
    asks: OnceLock<Arc<Lease>>,
}

impl Faulty {
    fn new(mem: Arc<MemDevice>, sharing: Sharing) -> Self {
        let (write_fails, flush_fails, asks) = Default::default();
        let (error, read_takes) = (ErrorKind::Other, Duration::ZERO);
        Self { mem, sharing, write_fails, flush_fails, error, read_takes, asks }
    }

    fn result(&self, fails: &AtomicBool) -> io::Result<()> {
        if fails.load(Ordering::SeqCst) { Err(self.error.into()) } else { Ok(()) }
    }
}

impl Device for Faulty {
    forward_device!(this => this.mem; size, sector_size, read_only, discard);

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        thread::sleep(self.read_takes);
        self.mem.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.result(&self.write_fails)?;
        self.mem.write_at(offset, bufs)?;
        let mut read = |offset, bytes: &mut [u8]| self.mem.read_at(offset, &mut [IoSliceMut::new(bytes)]);
        self.asks.get().map_or(Ok(()), |lease| lease.may_resend(&mut read))
    }

    fn flush(&self) -> io::Result<()> {
        self.result(&self.flush_fails)
    }
}

/// Returns an owner on a faulty device, and the device.
fn faulty_owner(sharing: Sharing, change: impl FnOnce(&mut Faulty)) -> (TestOwner, Arc<Faulty>) {
    let mut device = None;
    let owner = owner(|mem| {
        let mut faulty = Faulty::new(mem, sharing);
        change(&mut faulty);
        Arc::clone(device.insert(Arc::new(faulty))) as Arc<dyn Device>
    });
    (owner, device.unwrap())
}

#[test]
fn an_owner_knows_each_block_that_it_may_have_written() {
    let (owner, device) = faulty_owner(Sharing::Unfenced, |_| ());
    assert_eq!(owner.heartbeat.update().unwrap(), Update::Written);
    let durable = owner.place.read(&*owner.mem).unwrap();
    let health = Arc::new(Health::new(0, Clock::system()));
    owner.lease.attach(&health);
    device.flush_fails.store(true, Ordering::SeqCst);
    assert!(owner.heartbeat.update().is_err(), "written, but not flushed");
    assert!(health.check().is_err(), "the volume has stopped");
    assert!(owner.heartbeat.update().is_err());
    device.write_fails.store(true, Ordering::SeqCst);
    assert!(owner.heartbeat.update().is_err(), "not written");
    assert!(owner.heartbeat.update().is_err(), "the block is still its own");
    // The server restarts without what was not flushed.
    owner.place.write(&*owner.mem, &durable).unwrap();
    device.write_fails.store(false, Ordering::SeqCst);
    device.flush_fails.store(false, Ordering::SeqCst);
    assert_eq!(owner.heartbeat.update().unwrap(), Update::Written);
    owner.write().unwrap();
}

#[test]
fn an_idle_owner_stops_when_its_device_has_given_up() {
    for (sharing, error, stops) in [
        (Sharing::Fenced, ErrorKind::PermissionDenied, true),
        (Sharing::Fenced, ErrorKind::TimedOut, true),
        (Sharing::Unfenced, ErrorKind::TimedOut, true),
        (Sharing::Fenced, ErrorKind::Other, false),
        (Sharing::Local, ErrorKind::TimedOut, false),
    ] {
        let (owner, device) = faulty_owner(sharing, |faulty| faulty.error = error);
        assert_eq!(owner.heartbeat.update().unwrap(), Update::Written);
        let health = Arc::new(Health::new(0, Clock::system()));
        owner.lease.attach(&health);
        device.write_fails.store(true, Ordering::SeqCst);
        let update = owner.heartbeat.update();
        assert_eq!(matches!(update, Ok(Update::Lost)), stops, "{sharing:?}, {error}: {update:?}");
        assert_eq!(health.check().is_err(), stops, "{sharing:?}, {error}");
    }
}

#[test]
fn an_owner_whose_last_answer_was_lost_finds_its_own_clean_block() {
    let (owner, device) = faulty_owner(Sharing::Unfenced, |_| ());
    assert_eq!(owner.heartbeat.update().unwrap(), Update::Written);
    device.asks.set(Arc::clone(&owner.lease)).unwrap();
    assert!(owner.heartbeat.close().unwrap());
    assert_eq!(read(&*owner.mem).unwrap().unwrap().usage, MmpUse::Clean);
}

#[test]
fn a_slow_flush_of_a_fenced_device_does_not_hide_its_owner() {
    let (owner, device) = faulty_owner(Sharing::Fenced, |_| ());
    device.flush_fails.store(true, Ordering::SeqCst);
    assert_eq!(owner.heartbeat.update().unwrap(), Update::Written, "no flush");
}

#[test]
fn an_owner_on_a_slow_device_can_be_closed() {
    let (owner, _) = faulty_owner(Sharing::Unfenced, |faulty| faulty.read_takes = 11 * SECOND);
    let TestOwner { lease, heartbeat, .. } = owner;
    let keeping = thread::spawn(move || heartbeat.run());
    thread::sleep(SECOND);
    lease.timer().stop();
    assert!(testkit::poll::until(|| keeping.is_finished()), "no read is fast enough for the lease");
}

#[test]
fn only_a_clean_close_lets_others_use_the_device() {
    for is_clean in [false, true] {
        let owner = owner(plain);
        owner.lease.close(is_clean);
        assert_eq!(owner.lease.may_write(), is_clean);
    }
}

/// A device with a queue of its own.
#[derive(Debug)]
struct Queued(Arc<MemDevice>);

impl Device for Queued {
    forward_device!(this => this.0; size, sector_size, read_only, read_at, write_at, flush, discard);

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        Arc::clone(&self.0).native_queue(depth)
    }
}

#[test]
fn late_requests_of_a_queue_wait_for_an_update() {
    let owner = owner(|mem| Arc::new(Queued(mem)));
    let mut queue = Arc::clone(&owner.leased).native_queue(4).unwrap().expect("a queue");
    let write = || {
        let segment = Segment::whole(Arc::new(AlignedBuf::zeroed(512)));
        Op::Write { offset: 0, segments: [segment].into_iter().collect() }
    };
    let mut done = Vec::new();
    (0..10).for_each(|token| queue.submit(Request { token, op: write() }));
    queue.harvest(false, &mut done).unwrap();
    assert_eq!((done.len(), queue.in_flight()), (0, 10));
    assert!(queue.cancel(3) && !queue.cancel(11));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(SECOND);
                assert_eq!(owner.heartbeat.update().unwrap(), Update::Written);
            }
        });
        while queue.in_flight() > 0 {
            queue.harvest(true, &mut done).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(done.iter().filter(|done| done.result.is_ok()).count(), 9);
    done.clear();

    owner.take_over();
    assert_eq!(owner.heartbeat.update().unwrap(), Update::Lost);
    let read = Op::Read { offset: 0, buf: AlignedBuf::zeroed(512), len: 512 };
    [write(), Op::Flush, read].into_iter().for_each(|op| queue.submit(Request { token: 0, op }));
    while queue.in_flight() > 0 {
        queue.harvest(true, &mut done).unwrap();
    }
    assert_eq!(done.iter().filter(|done| done.result.is_ok()).count(), 1, "only the read");
}

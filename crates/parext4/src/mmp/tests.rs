//! The lease of one owner, without its thread.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parext4_device::{
    AlignedBuf, Device, FaultDevice, FaultPlan, MemDevice, Op, Queue, Request, Segment, WriteGuard,
    forward_device,
};
use parext4_format::mmp::Mmp;

use super::keeper::{Keeper, Update};
use super::lease::{Lease, Standing};
use super::leased_device::LeasedDevice;
use super::place::Place;
use super::{MmpOptions, MmpUse, read};
use crate::mkfs::{MkfsOptions, mkfs};
use crate::superblock::read_superblock;

/// Length of a second. The lease lasts for ten.
const SECOND: Duration = Duration::from_millis(100);

/// An owner whose thread is the test.
struct TestOwner {
    mem: Arc<MemDevice>,
    place: Place,
    lease: Arc<Lease>,
    keeper: Keeper,
    leased: Arc<dyn Device>,
}

/// Returns the owner of a volume on a device that `wrap` returns. Its lease has ended.
fn owner(wrap: impl FnOnce(Arc<MemDevice>) -> Arc<dyn Device>) -> TestOwner {
    let mem = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*mem, &MkfsOptions::new().mmp(true)).unwrap();
    let place = Place::of(&read_superblock(&*mem).unwrap()).unwrap().unwrap();
    let options = MmpOptions::new().second(SECOND);
    let mine = place.mine(&options);
    place.write(&*mem, &mine).unwrap();
    let device = wrap(Arc::clone(&mem));
    let lease = Arc::new(Lease::new(&*device, &place, &options));
    lease.begin(mine);
    let keeper = Keeper::new(Arc::clone(&device), place.clone(), &options, &lease);
    let leased = Arc::new(LeasedDevice::new(device, &lease));
    TestOwner { mem, place, lease, keeper, leased }
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
    assert_eq!(owner.keeper.update().unwrap(), Update::Written);
    // As the thread does when an update ends after the volume was closed, and before the thread is stopped.
    owner.lease.retire("the volume has stopped");
    owner.keeper.close().unwrap();
    assert_eq!(read(&*owner.mem).unwrap().unwrap().usage, MmpUse::Clean);
}

#[test]
fn a_late_write_waits_for_an_update() {
    let owner = owner(plain);
    thread::scope(|scope| {
        let writer = scope.spawn(|| owner.write());
        thread::sleep(SECOND);
        assert!(!writer.is_finished(), "the lease has not begun");
        assert_eq!(owner.keeper.update().unwrap(), Update::Written);
        writer.join().unwrap().unwrap();
    });
    thread::sleep(11 * SECOND);
    assert!(matches!(owner.lease.standing(), Standing::Ended));
    owner.take_over();
    thread::scope(|scope| {
        let writer = scope.spawn(|| owner.write());
        assert_eq!(owner.keeper.update().unwrap(), Update::Lost);
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

#[test]
fn failed_updates_stop_an_owner_only_when_a_write_needs_one() {
    let owner = owner(plain);
    assert_eq!(owner.keeper.update().unwrap(), Update::Written);
    let failing = Keeper::new(
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
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SECOND);
            assert_eq!(owner.keeper.update().unwrap(), Update::Written);
        });
        while queue.in_flight() > 0 {
            queue.harvest(true, &mut done).unwrap();
        }
    });
    assert_eq!(done.iter().filter(|done| done.result.is_ok()).count(), 9);
    done.clear();

    owner.take_over();
    assert_eq!(owner.keeper.update().unwrap(), Update::Lost);
    let read = Op::Read { offset: 0, buf: AlignedBuf::zeroed(512), len: 512 };
    [write(), Op::Flush, read].into_iter().for_each(|op| queue.submit(Request { token: 0, op }));
    while queue.in_flight() > 0 {
        queue.harvest(true, &mut done).unwrap();
    }
    assert_eq!(done.iter().filter(|done| done.result.is_ok()).count(), 1, "only the read");
}

//! The lease of a volume's owner, beside another machine that takes the volume over while the owner
//! is stopped.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parext4::device::{Sharing, forward_device};
use parext4::fault::Fault;
use parext4::mmp::OwnerEvidence;
use parext4::models::OwnerModel;
use parext4::{Device, MemDevice, MkfsOptions, mkfs};
use shuttle::rand::Rng;
use shuttle::thread::JoinHandle;

use super::support::*;

/// Offset of the bytes that the owner writes.
const DATA: u64 = 2 << 20;

/// The device of both machines, as one of them sees it.
#[derive(Debug)]
struct SharedDevice {
    inner: Arc<MemDevice>,
    /// Whether the other machine uses the volume. `None` on that machine.
    taken: Option<Arc<AtomicBool>>,
}

impl Device for SharedDevice {
    forward_device!(this => this.inner; size, sector_size, read_only, flush, discard);

    fn sharing(&self) -> Sharing {
        Sharing::Unfenced
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.inner.read_at(offset, bufs)?;
        // Long enough for the other machine to take over before the result arrives.
        if self.taken.is_some() && shuttle::rand::thread_rng().gen_ratio(1, 4) {
            yield_randomly(2000);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if let Some(taken) = &self.taken
            && offset == DATA
        {
            assert!(!taken.load(Ordering::SeqCst), "the owner writes to a volume that was taken over");
        }
        self.inner.write_at(offset, bufs)
    }
}

/// Returns a volume with an update interval in seconds.
fn protected_image(interval: u16) -> MemDevice {
    let device = MemDevice::new(4 << 20);
    let options = MkfsOptions::new().block_size(1024).mmp(true).mmp_update_interval(interval);
    mkfs(&device, &options).expect("mkfs");
    device
}

#[test]
fn an_owner_that_was_stopped_does_not_write() {
    let image = Arc::new(protected_image(5));
    let faults = [Fault::LeaseIgnored, Fault::OtherOwnerIgnored, Fault::LateUpdate];
    search(200, &faults, |iterations| {
        let image = Arc::clone(&image);
        random(iterations, move || model(&image));
    });
}

/// Returns what a machine that takes over believes about the owner. It may be wrong, because the
/// owner lives.
fn evidence() -> OwnerEvidence {
    if shuttle::rand::thread_rng().gen_bool(0.5) { OwnerEvidence::Unknown } else { OwnerEvidence::Forced }
}

/// Starts a writer, and the owner's thread.
fn write_and_keep(owner: &Arc<OwnerModel>) -> [JoinHandle<()>; 2] {
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (owner, done) = (Arc::clone(owner), Arc::clone(&done));
        move || {
            for _ in 0..3 {
                yield_randomly(400);
                if owner.device().write_at(DATA, &[IoSlice::new(&[1; SECTOR])]).is_err() {
                    break;
                }
            }
            done.store(true, Ordering::SeqCst);
        }
    };
    let owner = Arc::clone(owner);
    let keeper = move || {
        while !done.load(Ordering::SeqCst) {
            yield_randomly(1000);
            if !owner.update() {
                break;
            }
        }
    };
    [shuttle::thread::spawn(writer), shuttle::thread::spawn(keeper)]
}

fn model(image: &MemDevice) {
    let (inner, taken) = (Arc::new(image.fork()), Arc::new(AtomicBool::new(false)));
    let device = |taken| Arc::new(SharedDevice { inner: Arc::clone(&inner), taken });
    let owner = OwnerModel::claim(device(Some(Arc::clone(&taken))), OwnerEvidence::Unknown);
    let owner = Arc::new(owner.expect("a clean volume"));
    let taker = take_over(device(None), evidence(), taken);
    end(&owner, taker);
}

/// Starts another machine that claims the volume. It returns whether it has got it.
fn take_over(device: Arc<dyn Device>, evidence: OwnerEvidence, taken: Arc<AtomicBool>) -> JoinHandle<bool> {
    shuttle::thread::spawn(move || {
        let claimed = OwnerModel::claim(device, evidence).map(std::mem::forget).is_ok();
        taken.store(claimed, Ordering::SeqCst);
        claimed
    })
}

/// Writes as the owner while the other machine claims the volume.
fn end(owner: &Arc<OwnerModel>, taker: JoinHandle<bool>) {
    let threads = write_and_keep(owner);
    let claimed = taker.join().expect("the taker does not panic");
    for thread in threads {
        thread.join().expect("the owner does not panic");
    }
    assert!(claimed || owner.update(), "the volume lost its owner and has no other");
}

#[test]
fn a_late_machine_outlasts_the_lease_of_the_owner_of_meanwhile() {
    // The owner's lease lasts for longer than the clean block asks another machine to wait.
    let image = Arc::new(protected_image(100));
    search(100, &[Fault::LateClaim, Fault::LateWait], |iterations| {
        let image = Arc::clone(&image);
        random(iterations, move || late_model(&image));
    });
}

/// A machine reads a clean block, and is stopped until another machine has opened the volume.
fn late_model(image: &MemDevice) {
    let inner = Arc::new(image.fork());
    let [taken, arrived, owned] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let late = LateDevice {
        shared: SharedDevice { inner: Arc::clone(&inner), taken: None },
        arrived: Arc::clone(&arrived),
        owned: Arc::clone(&owned),
    };
    let taker = take_over(Arc::new(late), OwnerEvidence::Unknown, Arc::clone(&taken));
    wait_for(&arrived);
    let owner =
        OwnerModel::claim(Arc::new(SharedDevice { inner, taken: Some(taken) }), OwnerEvidence::Unknown);
    let owner = Arc::new(owner.expect("a clean volume"));
    owned.store(true, Ordering::SeqCst);
    end(&owner, taker);
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        shuttle::thread::yield_now();
    }
}

/// The device of a machine that is stopped before its first write until another one owns the
/// volume.
#[derive(Debug)]
struct LateDevice {
    shared: SharedDevice,
    arrived: Arc<AtomicBool>,
    owned: Arc<AtomicBool>,
}

impl Device for LateDevice {
    forward_device!(this => this.shared; size, sector_size, read_only, sharing, read_at, flush, discard);

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.arrived.store(true, Ordering::SeqCst);
        wait_for(&self.owned);
        self.shared.write_at(offset, bufs)
    }
}

#[test]
fn of_machines_that_open_a_clean_volume_one_writes() {
    let image = Arc::new(protected_image(5));
    search(400, &[Fault::LateClaim], |iterations| {
        let image = Arc::clone(&image);
        random(iterations, move || clean_model(&image));
    });
}

/// Two machines open a clean volume and write. Each of them may be stopped after it has read the
/// clean block.
fn clean_model(image: &MemDevice) {
    let inner = Arc::new(image.fork());
    let (claims, latest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let machine = || {
        let device = RacingDevice {
            shared: SharedDevice { inner: Arc::clone(&inner), taken: Some(Arc::default()) },
            order: AtomicU64::new(0),
            latest: Arc::clone(&latest),
        };
        let (device, claims) = (Arc::new(device), Arc::clone(&claims));
        move || {
            let Ok(owner) = OwnerModel::claim(Arc::clone(&device) as _, OwnerEvidence::Unknown) else {
                return;
            };
            device.order.store(claims.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let owner = Arc::new(owner);
            for thread in write_and_keep(&owner) {
                thread.join().expect("the owner does not panic");
            }
            // The other machine finds the volume in use.
            std::mem::forget(owner);
        }
    };
    let threads = [shuttle::thread::spawn(machine()), shuttle::thread::spawn(machine())];
    for thread in threads {
        thread.join().expect("no machine panics");
    }
    assert!(claims.load(Ordering::SeqCst) > 0, "no machine has opened the volume");
}

/// The device of a machine that races with another one.
#[derive(Debug)]
struct RacingDevice {
    shared: SharedDevice,
    /// Number of this machine's claim among the successful claims.
    order: AtomicU64,
    /// The latest claim whose machine has written.
    latest: Arc<AtomicU64>,
}

impl Device for RacingDevice {
    forward_device!(this => this.shared; size, sector_size, read_only, sharing, read_at, flush, discard);

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if offset == DATA {
            let order = self.order.load(Ordering::SeqCst);
            let latest = self.latest.fetch_max(order, Ordering::SeqCst);
            assert!(order >= latest, "an owner writes after a later one");
        }
        self.shared.write_at(offset, bufs)
    }
}

//! The lease of a volume's owner, beside another machine that takes the volume over while the owner is stopped.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parext4::device::{Sharing, forward_device};
use parext4::fault::Fault;
use parext4::mmp::{MmpOptions, seize};
use parext4::models::OwnerModel;
use parext4::{Device, MemDevice, MkfsOptions, mkfs};
use shuttle::rand::Rng;

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

fn protected_image() -> MemDevice {
    let device = MemDevice::new(4 << 20);
    mkfs(&device, &MkfsOptions::new().block_size(1024).mmp(true)).expect("mkfs");
    device
}

#[test]
fn an_owner_that_was_stopped_does_not_write() {
    let image = Arc::new(protected_image());
    let faults = [Fault::LeaseIgnored, Fault::OtherOwnerIgnored, Fault::LateUpdate];
    search(200, &faults, |iterations| {
        let image = Arc::clone(&image);
        random(iterations, move || model(&image));
    });
}

fn model(image: &MemDevice) {
    let (inner, taken) = (Arc::new(image.fork()), Arc::new(AtomicBool::new(false)));
    let device = |taken| Arc::new(SharedDevice { inner: Arc::clone(&inner), taken });
    let owner = Arc::new(OwnerModel::claim(device(Some(Arc::clone(&taken)))).expect("a clean volume"));
    let done = Arc::new(AtomicBool::new(false));

    let writer = {
        let (owner, done) = (Arc::clone(&owner), Arc::clone(&done));
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
    let keeper = {
        let (owner, done) = (Arc::clone(&owner), Arc::clone(&done));
        move || {
            while !done.load(Ordering::SeqCst) {
                yield_randomly(1000);
                if !owner.update() {
                    break;
                }
            }
        }
    };
    let taker = {
        let device = device(None);
        move || {
            let seized =
                shuttle::rand::thread_rng().gen_bool(0.5) || seize(&*device, &MmpOptions::new()).is_ok();
            // The claim of a volume that was seized finds a closed volume.
            let claimed = seized && OwnerModel::claim(device).map(std::mem::forget).is_ok();
            taken.store(claimed, Ordering::SeqCst);
            claimed
        }
    };
    let threads = [shuttle::thread::spawn(writer), shuttle::thread::spawn(keeper)];
    let claimed = shuttle::thread::spawn(taker).join().expect("the taker does not panic");
    for thread in threads {
        thread.join().expect("the owner does not panic");
    }
    assert!(claimed || owner.update(), "the volume lost its owner and has no other");
}

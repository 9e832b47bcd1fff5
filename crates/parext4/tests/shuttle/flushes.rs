//! Flushes of several threads on a device that reports only once that it has lost writes.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};

use parext4::device::forward_device;
use parext4::fault::Fault;
use parext4::models::FlushTurn;
use parext4::{Device, MemDevice};
use shuttle::rand::Rng;

use super::support::*;

const THREADS: u64 = 3;

/// A device with a cache, one of whose flushes loses all writes in it. Another flush that runs at
/// the same time knows nothing of them.
#[derive(Debug)]
struct LossyDevice {
    inner: MemDevice,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    /// Offsets of the writes that no flush has taken yet.
    dirty: BTreeSet<u64>,
    lost: BTreeSet<u64>,
}

impl Device for LossyDevice {
    forward_device!(this => this.inner; size, sector_size, read_only, read_at, discard);

    fn write_at(&self, offset: u64, _: &[IoSlice<'_>]) -> io::Result<()> {
        self.cache.lock().unwrap().dirty.insert(offset);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let fails = {
            let cache = &mut *self.cache.lock().unwrap();
            let taken = std::mem::take(&mut cache.dirty);
            let fails = cache.lost.is_empty() && shuttle::rand::thread_rng().gen_bool(0.5);
            if fails {
                cache.lost = taken;
            }
            fails
        };
        yield_randomly(20);
        if fails { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }
}

#[test]
fn no_flush_succeeds_whose_writes_another_one_has_lost() {
    search(2000, &[Fault::FlushesOverlap, Fault::FailedFlushForgotten], |iterations| {
        random(iterations, model);
    });
}

fn model() {
    let lossy = Arc::new(LossyDevice { inner: MemDevice::new(1 << 20), cache: Mutex::default() });
    let device = Arc::new(FlushTurn::new(Arc::clone(&lossy) as Arc<dyn Device>));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (device, lossy) = (Arc::clone(&device), Arc::clone(&lossy));
            shuttle::thread::spawn(move || {
                for offset in [thread * 512, (THREADS + thread) * 512] {
                    device.write_at(offset, &[IoSlice::new(&[1; 512])]).unwrap();
                    shuttle::thread::yield_now();
                    if device.flush().is_ok() {
                        let cache = lossy.cache.lock().unwrap();
                        assert!(!cache.lost.contains(&offset), "a lost write was reported as durable");
                        assert!(
                            !cache.dirty.contains(&offset),
                            "a write was reported as durable before a flush"
                        );
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

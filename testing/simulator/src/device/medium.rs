//! The contents of a simulated device. Other threads can run between any two sectors of a request.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parext4::device::forward_device;
use parext4::models::simulated_time::sleep;
use parext4::{Device, MemDevice};
use parking_lot::Mutex;
use testkit::rng::Rng;
use testkit::sector::SECTOR;

use crate::profile::Profile;

/// The contents, as reads return them. What a power cut leaves of them is up to the device.
#[derive(Debug)]
pub struct Medium {
    contents: MemDevice,
    profile: Profile,
    rng: Mutex<Rng>,
    is_off: AtomicBool,
    /// Whether requests are performed in one step.
    is_hasty: AtomicBool,
}

impl Medium {
    pub fn new(contents: MemDevice, profile: Profile, seed: u64) -> Self {
        let rng = Mutex::new(Rng::new(seed, 3));
        Self { contents, profile, rng, is_off: AtomicBool::new(false), is_hasty: AtomicBool::new(false) }
    }

    /// Blocks the thread for the time of a request.
    ///
    /// # Errors
    /// The power was cut meanwhile.
    pub fn wait(&self) -> io::Result<()> {
        if !self.is_hasty.load(Relaxed) {
            sleep(self.latency());
        }
        self.check_power()
    }

    /// Returns the time of a request.
    pub fn latency(&self) -> std::time::Duration {
        self.profile.latency(&mut self.rng.lock())
    }

    pub fn is_off(&self) -> bool {
        self.is_off.load(Relaxed)
    }

    /// Returns an error if the power was cut.
    pub fn check_power(&self) -> io::Result<()> {
        if self.is_off() { Err(io::Error::other("the power was cut")) } else { Ok(()) }
    }

    /// Cuts the power, after `last` has performed its requests in one step.
    pub fn cut_power(&self, last: impl FnOnce()) {
        self.is_hasty.store(true, Relaxed);
        last();
        self.is_off.store(true, Relaxed);
    }

    /// Performs `last` requests in one step.
    pub fn in_one_step(&self, requests: impl FnOnce()) {
        let was_hasty = self.is_hasty.swap(true, Relaxed);
        requests();
        self.is_hasty.store(was_hasty, Relaxed);
    }

    /// Returns true if other threads may run between the sectors of the next request.
    fn is_slow(&self) -> bool {
        !self.is_hasty.load(Relaxed) && self.rng.lock().chance(50)
    }
}

impl Device for Medium {
    forward_device!(this => this.contents; size, sector_size, read_only, discard);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        if !self.is_slow() {
            return self.contents.read_at(offset, bufs);
        }
        let mut at = offset;
        for sector in bufs.iter_mut().flat_map(|buf| buf.chunks_mut(SECTOR)) {
            shuttle::thread::yield_now();
            let len = sector.len() as u64;
            self.contents.read_at(at, &mut [IoSliceMut::new(sector)])?;
            at += len;
        }
        self.check_power()
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if !self.is_slow() {
            return self.contents.write_at(offset, bufs);
        }
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        for (number, sector) in (0..).zip(bytes.chunks(SECTOR)) {
            shuttle::thread::yield_now();
            self.contents.write_at(offset + number * SECTOR as u64, &[IoSlice::new(sector)])?;
        }
        self.check_power()
    }

    fn flush(&self) -> io::Result<()> {
        self.wait()
    }
}

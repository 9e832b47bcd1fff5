//! Power cuts after a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parext4::models::simulated_time::sleep;
use shuttle::thread::{self, JoinHandle};

use crate::device::SimulatedDevice;

/// The power of a device.
#[derive(Debug)]
pub struct Power {
    device: Arc<SimulatedDevice>,
    /// The threads that may cut it, and whether they still do.
    cutters: Vec<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Power {
    pub fn new(device: &Arc<SimulatedDevice>) -> Self {
        Self { device: Arc::clone(device), cutters: Vec::new() }
    }

    /// Cuts the power after `time`.
    pub fn cut_after(&mut self, time: Duration) {
        let is_armed = Arc::new(AtomicBool::new(true));
        let (device, armed) = (Arc::clone(&self.device), Arc::clone(&is_armed));
        let cutter = thread::spawn(move || {
            sleep(time);
            if armed.load(Relaxed) {
                device.cut_power();
            }
        });
        self.cutters.push((is_armed, cutter));
    }

    /// Revokes the power cuts that have not happened.
    pub fn keep(&self) {
        self.cutters.iter().for_each(|(is_armed, _)| is_armed.store(false, Relaxed));
    }

    /// Revokes the power cuts that have not happened, and joins their threads.
    pub fn end(self) {
        self.keep();
        self.cutters.into_iter().for_each(|(_, cutter)| cutter.join().expect("it does not panic"));
    }
}

//! Every queue that `open_queue` opens, also that of a device outside the crate, through one table
//! of behaviours.

mod behaviour;
mod files;
mod sim;
mod threads;
mod uring;

use super::block_device::Loop;
use super::pattern;
use device_testkit::RemoteDevice;
use device_testkit::contract::{bytes, finish, flush, one, read, succeed, write};
use parext4_device::{
    Device, DeviceOptions, Direct, Done, FaultDevice, FaultPlan, FileDevice, MemDevice, Op, Queue, Request,
    Segment, SimDevice, SimProfile, open_file_queue, open_queue,
};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const SIZE: u64 = 4 << 20;

fn memory() -> Arc<MemDevice> {
    Arc::new(MemDevice::new(SIZE))
}

/// Makes a device of `SIZE` bytes that takes `latency` for each request, with `parallel` requests
/// at a time.
fn simulated(latency: Duration, parallel: usize) -> Arc<dyn Device> {
    let profile = SimProfile::new(latency, parallel);
    Arc::new(SimDevice::new(memory(), profile))
}

/// Makes a device in a temporary file, or returns `None` if the file has no such I/O.
fn image(direct: Direct) -> Option<(TempDir, Arc<dyn Device>)> {
    let dir = TempDir::new().unwrap();
    match FileDevice::open(dir.path().join("image"), &DeviceOptions::new().create(SIZE).direct(direct)) {
        Ok(device) => Some((dir, Arc::new(device))),
        Err(error) => {
            device_testkit::skip_allowed(&format!("with {direct:?}: {error}"));
            None
        }
    }
}

/// Returns whether the system has io_uring.
fn has_io_uring() -> bool {
    let (_dir, device) = image(Direct::Never).unwrap();
    let name = format!("{:?}", open_queue(&device, 1));
    let has = name.starts_with("UringQueue");
    if !has {
        assert!(name.starts_with("ThreadQueue"), "{name}");
        device_testkit::skipped("no io_uring; files are served by threads");
    }
    has
}

/// Runs `test` on an empty device of `SIZE` bytes for every kind of queue.
fn on_every_queue(test: impl Fn(&Arc<dyn Device>)) {
    let on = |expected: &str, device: &Arc<dyn Device>| {
        let name = format!("{:?}", open_queue(device, 1));
        assert!(name.starts_with(expected), "{name}");
        eprintln!("on {expected}");
        test(device);
    };
    on("InlineQueue", &(memory() as _));
    on("SimQueue", &simulated(Duration::from_micros(50), 4));
    on("RemoteQueue", &(Arc::new(RemoteDevice::new(memory())) as _));
    on("ThreadQueue", &(Arc::new(FaultDevice::new(memory(), FaultPlan::default())) as _));
    let expected = if has_io_uring() { "UringQueue" } else { "ThreadQueue" };
    for direct in [Direct::Never, Direct::Always] {
        if let Some((_dir, device)) = image(direct) {
            on(expected, &device);
        }
    }
    if let Some(lo) = Loop::attach(SIZE) {
        on(expected, &(Arc::new(FileDevice::open(&lo.path, &DeviceOptions::new()).unwrap()) as _));
    }
}

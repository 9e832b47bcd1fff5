//! Cost of a request in each queue: `cargo bench -p parext4-device`.
//!
//! Compare lines of one run only. `uring` and `threads` read a small file through the page cache,
//! so the kernel's part of their cost is small and equal.

use std::sync::Arc;
use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use parext4_device::{
    AlignedBuf, Device, DeviceOptions, Direct, Done, FaultDevice, FaultPlan, FileDevice, MemDevice, Op,
    Queue, Request, SimDevice, SimProfile, open_queue,
};

const SIZE: u64 = 4 << 20;
const DEPTHS: [u32; 3] = [1, 32, 1024];

fn main() {
    divan::main();
}

#[divan::bench(args = DEPTHS)]
fn inline(bencher: Bencher<'_, '_>, depth: u32) {
    reads(bencher, Arc::new(MemDevice::new(SIZE)), depth);
}

/// Has a slot for each request, so all requests of a batch are due at once.
#[divan::bench(args = DEPTHS)]
fn sim_parallel(bencher: Bencher<'_, '_>, depth: u32) {
    reads(bencher, simulated(Duration::from_nanos(1), depth as usize), depth);
}

/// Has 64 slots, so the device completes a request about every 300 ns. Time above that is the cost
/// of its clock.
#[divan::bench(args = DEPTHS)]
fn sim_saturated(bencher: Bencher<'_, '_>, depth: u32) {
    reads(bencher, simulated(Duration::from_nanos(300 * 64), 64), depth);
}

#[divan::bench(args = DEPTHS)]
fn uring(bencher: Bencher<'_, '_>, depth: u32) {
    reads(bencher, Arc::new(file()), depth);
}

#[divan::bench(args = DEPTHS)]
fn threads(bencher: Bencher<'_, '_>, depth: u32) {
    reads(bencher, Arc::new(FaultDevice::new(Arc::new(file()), FaultPlan::default())), depth);
}

fn simulated(latency: Duration, parallel: usize) -> Arc<dyn Device> {
    let profile = SimProfile::new(latency, parallel);
    Arc::new(SimDevice::new(Arc::new(MemDevice::new(SIZE)), profile))
}

fn file() -> FileDevice {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let options = DeviceOptions::new().create(SIZE).direct(Direct::Never);
    FileDevice::open(file.path(), &options).expect("an image")
}

/// Keeps `depth` reads of 512 bytes in flight. An iteration completes `depth` reads.
fn reads(bencher: Bencher<'_, '_>, device: Arc<dyn Device>, depth: u32) {
    let mut queue = open_queue(&device, depth);
    for token in 0..depth.into() {
        queue.submit(read(token, AlignedBuf::zeroed(512)));
    }
    let mut done = Vec::new();
    bencher.counter(ItemsCount::new(depth)).bench_local(|| turn(&mut *queue, depth, &mut done));
}

fn read(token: u64, buf: AlignedBuf) -> Request {
    Request { token, op: Op::Read { offset: token * 512 % SIZE, len: buf.len(), buf } }
}

/// Harvests `count` requests and submits each one again.
fn turn(queue: &mut dyn Queue, count: u32, done: &mut Vec<Done>) {
    let mut left = count as usize;
    while left > 0 {
        queue.harvest(true, done).expect("a queue that works");
        left = left.saturating_sub(done.len());
        for Done { token, result, op } in done.drain(..) {
            result.expect("a read of a good file");
            let Op::Read { buf, .. } = op else { unreachable!("only reads were submitted") };
            queue.submit(read(token, buf));
        }
    }
}

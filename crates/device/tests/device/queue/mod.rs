//! Every queue that `open_queue` opens, also that of a device outside the crate, through one table of behaviours.

mod behaviour;
mod files;
mod sim;
mod threads;
mod uring;

use super::block_device::Loop;
use super::pattern;
use parext4_device::{
    AlignedBuf, Device, DeviceOptions, Direct, Done, FaultDevice, FaultPlan, FileDevice, MemDevice, Op,
    Queue, Request, Segment, SimDevice, SimProfile, open_file_queue, open_queue,
};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use testkit::device::RemoteDevice;

const SIZE: u64 = 4 << 20;

fn memory() -> Arc<MemDevice> {
    Arc::new(MemDevice::new(SIZE))
}

/// Makes a device of `SIZE` bytes that takes `latency` for each request, with `parallel` requests at a time.
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
            eprintln!("SKIPPED with {direct:?}: {error}");
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
        eprintln!("SKIPPED: no io_uring; files are served by threads");
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

fn read(token: u64, offset: u64, len: usize) -> Request {
    // The buffer is longer than the read, whose end the tests check.
    let buf = AlignedBuf::zeroed(len.next_multiple_of(512) + 512);
    Request { token, op: Op::Read { offset, buf, len } }
}

fn write(token: u64, offset: u64, bytes: &[u8]) -> Request {
    let segment = Segment::whole(Arc::new(AlignedBuf::from_slice(bytes)));
    Request { token, op: Op::Write { offset, segments: [segment].into_iter().collect() } }
}

fn flush(token: u64) -> Request {
    Request { token, op: Op::Flush }
}

/// Harvests until nothing is in flight, and returns the completions sorted by token.
fn finish(queue: &mut dyn Queue) -> Vec<Done> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        let before = (queue.in_flight(), done.len());
        queue.harvest(true, &mut done).unwrap();
        assert_eq!(before.0 - queue.in_flight(), done.len() - before.1);
    }
    done.sort_by_key(|done| done.token);
    done
}

/// Submits one request and returns its completion.
fn one(queue: &mut dyn Queue, request: Request) -> Done {
    queue.submit(request);
    let mut done = finish(queue);
    assert_eq!(done.len(), 1);
    done.pop().unwrap()
}

/// Returns the bytes that a successful read returned.
fn bytes(done: &Done) -> &[u8] {
    done.result.as_ref().unwrap();
    let Op::Read { buf, len, .. } = &done.op else { panic!("{done:?} is no read") };
    assert!(buf[*len..].iter().all(|&byte| byte == 0), "wrote past the length of the read");
    &buf[..*len]
}

fn succeed(queue: &mut dyn Queue, request: Request) {
    one(queue, request).result.unwrap();
}

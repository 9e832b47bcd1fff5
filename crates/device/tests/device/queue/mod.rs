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

/// Sectors of 512 bytes, `SIZE` bytes, one request at a time on the device if the back end knows that notion.
fn simulated(latency: Duration, parallel: usize) -> Arc<dyn Device> {
    let profile =
        SimProfile { read_latency: latency, write_latency: latency, flush_latency: latency, parallel };
    Arc::new(SimDevice::new(memory(), profile))
}

/// A volume in a temporary file.
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

/// Whether the system lets us test io_uring.
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

/// Runs `test` on a new, empty volume of `SIZE` bytes for every back end.
fn on_every_back_end(test: impl Fn(&Arc<dyn Device>)) {
    let on = |back_end: &str, device: &Arc<dyn Device>| {
        let name = format!("{:?}", open_queue(device, 1));
        assert!(name.starts_with(back_end), "{name}");
        eprintln!("on {back_end}");
        test(device);
    };
    on("InlineQueue", &(memory() as _));
    on("SimQueue", &simulated(Duration::from_micros(50), 4));
    on("RemoteQueue", &(Arc::new(RemoteDevice::new(memory())) as _));
    on("ThreadQueue", &(Arc::new(FaultDevice::new(memory(), FaultPlan::default())) as _));
    let back_end = if has_io_uring() { "UringQueue" } else { "ThreadQueue" };
    for direct in [Direct::Never, Direct::Always] {
        if let Some((_dir, device)) = image(direct) {
            on(back_end, &device);
        }
    }
    if let Some(lo) = Loop::attach(SIZE) {
        on(back_end, &(Arc::new(FileDevice::open(&lo.path, &DeviceOptions::new()).unwrap()) as _));
    }
}

fn read(token: u64, offset: u64, len: usize) -> Request {
    // The buffer is longer than what is read.
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

/// Harvests until nothing is in flight; sorted by token.
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

/// Does one request.
fn one(queue: &mut dyn Queue, request: Request) -> Done {
    queue.submit(request);
    let mut done = finish(queue);
    assert_eq!(done.len(), 1);
    done.pop().unwrap()
}

/// What a read that succeeded read.
fn bytes(done: &Done) -> &[u8] {
    done.result.as_ref().unwrap();
    let Op::Read { buf, len, .. } = &done.op else { panic!("{done:?} is no read") };
    assert!(buf[*len..].iter().all(|&byte| byte == 0), "wrote behind the length asked");
    &buf[..*len]
}

fn succeed(queue: &mut dyn Queue, request: Request) {
    one(queue, request).result.unwrap();
}

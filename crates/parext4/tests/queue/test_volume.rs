//! Volumes for the tests of queues, one for each back end.

use std::sync::Arc;
use std::time::Duration;

use parext4::device::{AlignedBuf, SimDevice, SimProfile};
use parext4::{
    Completion, Device, DeviceOptions, DirectFile, Error, FileDevice, IoFlags, IoQueue, IoRequest, MemDevice,
    Volume, VolumeOptions,
};
use testkit::device::{HookedDevice, RemoteDevice, SplitRequests};

use testkit::volume::{Shape, assert_clean, assert_clean_file, untimed};
use testkit::watchdog::Watchdog;

pub const NOWAIT: IoFlags = IoFlags::new().nowait(true);
pub const WAIT: IoFlags = IoFlags::new().nowait(false);

/// The back ends of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Inline,
    Uring,
    Threads,
    Sim,
    /// The native queue of a device that is defined outside the device crate.
    Remote,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Inline, Self::Uring, Self::Threads, Self::Sim, Self::Remote];
}

/// The contents of the device, for e2fsck.
enum Store {
    Memory(Arc<MemDevice>),
    File(tempfile::TempDir),
}

/// Makes a volume on a device that was full of stale bytes.
pub struct TestVolume {
    store: Store,
    device: Arc<dyn Device>,
    pub volume: Volume,
    name: String,
}

impl TestVolume {
    pub fn new(kind: Kind, block_size: u32) -> Self {
        Self::open(kind, block_size, &untimed())
    }

    pub fn open(kind: Kind, block_size: u32, options: &VolumeOptions) -> Self {
        let memory = Shape::new(16, block_size, true).make_poisoned();
        let name = format!("{kind:?}, blocks of {block_size}");
        if kind == Kind::Uring {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            memory.save(dir.path().join("image")).unwrap();
            let device = Arc::new(FileDevice::open(dir.path().join("image"), &DeviceOptions::new()).unwrap());
            return Self::with(Store::File(dir), device, options, name);
        }
        let memory = Arc::new(memory);
        let device: Arc<dyn Device> = match kind {
            Kind::Threads => Arc::new(HookedDevice::new(Arc::clone(&memory), SplitRequests::new(1))),
            Kind::Remote => Arc::new(RemoteDevice::new(Arc::clone(&memory))),
            Kind::Sim => Arc::new(SimDevice::new(Arc::clone(&memory) as _, PROFILE)),
            _ => Arc::clone(&memory) as _,
        };
        Self::with(Store::Memory(memory), device, options, name)
    }

    /// Makes a volume in memory under another device.
    pub fn under(block_size: u32, wrap: impl FnOnce(Arc<MemDevice>) -> Arc<dyn Device>) -> Self {
        Self::under_with(block_size, &untimed(), wrap)
    }

    /// Like [`under`](Self::under), with other options.
    pub fn under_with(
        block_size: u32,
        options: &VolumeOptions,
        wrap: impl FnOnce(Arc<MemDevice>) -> Arc<dyn Device>,
    ) -> Self {
        let memory = Arc::new(Shape::new(16, block_size, true).make_poisoned());
        let device = wrap(Arc::clone(&memory));
        Self::with(Store::Memory(memory), device, options, format!("blocks of {block_size}"))
    }

    fn with(store: Store, device: Arc<dyn Device>, options: &VolumeOptions, name: String) -> Self {
        let volume = Volume::open_device(Arc::clone(&device), options).unwrap();
        Self { store, device, volume, name }
    }

    /// Closes the volume and opens it again.
    pub fn reopen(&mut self) {
        let options = untimed();
        self.volume.clone().close().unwrap();
        self.volume = Volume::open_device(Arc::clone(&self.device), &options).unwrap();
    }

    /// Closes the volume, which has no queue any more, and runs e2fsck.
    pub fn close(self) {
        self.volume.close().unwrap();
        drop(self.device);
        match self.store {
            Store::Memory(memory) => assert_clean(&memory, &self.name),
            Store::File(dir) => assert_clean_file(&dir.path().join("image"), &self.name),
        }
    }
}

const PROFILE: SimProfile = SimProfile::new(Duration::from_micros(50), 4)
    .write_latency(Duration::from_micros(80))
    .flush_latency(Duration::from_micros(100));

/// Returns a buffer of at least `bytes` bytes.
pub fn buffer(bytes: &[u8]) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(bytes.len().next_multiple_of(512));
    buf[..bytes.len()].copy_from_slice(bytes);
    buf
}

pub fn write(bytes: &[u8], offset: u64) -> IoRequest {
    IoRequest::Write { buf: buffer(bytes), len: bytes.len(), offset }
}

pub fn append(bytes: &[u8]) -> IoRequest {
    IoRequest::Append { buf: buffer(bytes), len: bytes.len() }
}

/// Returns a read into a buffer of nonzero bytes.
pub fn read(len: usize, offset: u64) -> IoRequest {
    IoRequest::Read { buf: buffer(&vec![0xee; len.next_multiple_of(512)]), len, offset }
}

/// Harvests all operations in flight. Returns the completions by token.
pub fn harvest_all(queue: &mut IoQueue) -> Vec<Completion> {
    let watchdog = Watchdog::start("harvest", 0, 1);
    let mut done = Vec::new();
    watchdog.watch(0, || {
        while queue.in_flight() > 0 {
            queue.harvest(&mut done).unwrap();
        }
    });
    done.sort_by_key(|completion| completion.token);
    done
}

/// Runs one operation to its completion, with nothing else in flight.
pub fn one(queue: &mut IoQueue, file: &DirectFile, request: IoRequest, flags: IoFlags) -> Completion {
    queue.submit(file, request, 1, flags);
    let mut done = harvest_all(queue);
    assert_eq!(done.len(), 1);
    done.pop().unwrap()
}

/// Returns the result of one operation with the option not to wait.
pub fn at_once(queue: &mut IoQueue, file: &DirectFile, request: IoRequest) -> Result<u64, Error> {
    one(queue, file, request, NOWAIT).result
}

/// Returns the contents of the file.
pub fn contents(file: &DirectFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

//! Volumes, threads and schedulers for the models, and the search with and without faults.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parext4::device::{InlineQueue, Queue, forward_device};
use parext4::fault::{Fault, plant};
use parext4::{
    Device, DirectFile, FileSize, MemDevice, MkfsOptions, Policy, ResearchOptions, SplitAt, Volume,
    VolumeOptions, mkfs,
};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};
use testkit::volume::DirectFiles as _;

pub const SECTOR: usize = 512;
/// Bytes in a block: two sectors.
pub const BLOCK: usize = 1024;
/// Byte that fills free blocks on the device. No read may return it.
pub const STALE: u8 = 0xaa;
/// Argument of `leave_blocks` that leaves no free block.
pub const NOTHING: i32 = i32::MIN / 2;

/// A device that yields to other threads between any two sectors of a request.
#[derive(Debug)]
pub struct YieldingDevice<D>(pub Arc<D>);

impl<D: Device + 'static> Device for YieldingDevice<D> {
    forward_device!(this => this.0; size, sector_size, read_only, discard);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        // Long enough for a file to be truncated and its blocks to be reused.
        linger(2000);
        let mut at = offset;
        for sector in bufs.iter_mut().flat_map(|buf| buf.chunks_mut(SECTOR)) {
            shuttle::thread::yield_now();
            let len = sector.len() as u64;
            self.0.read_at(at, &mut [IoSliceMut::new(sector)])?;
            at += len;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        linger(300);
        for (at, piece) in pieces(offset, bufs) {
            shuttle::thread::yield_now();
            self.0.write_at(at, &[IoSlice::new(&piece)])?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        shuttle::thread::yield_now();
        self.0.flush()
    }

    fn native_queue(self: Arc<Self>, _depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        Ok(Some(Box::new(InlineQueue::new(self))))
    }
}

/// Returns the unit that the device writes atomically: a sector. The superblock counts as one unit
/// although it spans two sectors, because no implementation opens a volume with half of it.
fn pieces(offset: u64, bufs: &[IoSlice<'_>]) -> Vec<(u64, Vec<u8>)> {
    let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
    let (mut pieces, mut rest, mut at) = (Vec::new(), &bytes[..], offset);
    while !rest.is_empty() {
        let len = if at == 1024 { 2 * SECTOR } else { SECTOR };
        let (piece, behind) = rest.split_at(len.min(rest.len()));
        pieces.push((at, piece.to_vec()));
        (rest, at) = (behind, at + piece.len() as u64);
    }
    pieces
}

/// Delays a request now and then.
fn linger(most: usize) {
    if shuttle::rand::thread_rng().gen_ratio(1, 8) {
        yield_randomly(most);
    }
}

/// How many times as many schedules are tried with a fault as without.
const PATIENCE: usize = 100;

/// Returns the number of schedules to try without a fault: `iterations`, multiplied by
/// `PAREXT4_MODEL_FACTOR`.
fn without_fault(iterations: usize) -> usize {
    let factor =
        std::env::var("PAREXT4_MODEL_FACTOR").map_or(1.0, |factor| factor.parse().expect("a number"));
    ((iterations as f64 * factor) as usize).max(1)
}

/// Checks `model` under many schedules, then that it fails with each of `faults`. The model gets a
/// volume of 4 MiB with blocks of 1 KiB whose free blocks hold [`STALE`], and forks it.
pub fn check(iterations: usize, faults: &[Fault], model: impl Fn(&MemDevice) + Send + Sync + 'static) {
    check_on(image("", None), iterations, faults, model);
}

/// Like [`check`], on a volume whose files are mapped by indirect blocks.
pub fn check_without_extents(
    iterations: usize,
    faults: &[Fault],
    model: impl Fn(&MemDevice) + Send + Sync + 'static,
) {
    check_on(image("^extent", None), iterations, faults, model);
}

/// Like [`check`], on a volume with clusters of `blocks` blocks.
pub fn check_with_clusters(
    blocks: u32,
    iterations: usize,
    faults: &[Fault],
    model: impl Fn(&MemDevice) + Send + Sync + 'static,
) {
    check_on(image("bigalloc,^resize_inode", Some(blocks * BLOCK as u32)), iterations, faults, model);
}

/// Like [`check`], on a volume of the caller.
pub fn check_on(
    image: MemDevice,
    iterations: usize,
    faults: &[Fault],
    model: impl Fn(&MemDevice) + Send + Sync + 'static,
) {
    let (model, image) = (Arc::new(model), Arc::new(image));
    search(iterations, faults, |iterations| {
        let (model, image) = (Arc::clone(&model), Arc::clone(&image));
        random(iterations, move || model(&image));
    });
}

/// Like [`check`], with a scheduler that stops a thread in the middle of a step until other threads
/// have completed theirs. The other threads must not yield.
pub fn check_stopping(
    iterations: usize,
    faults: &[Fault],
    model: impl Fn(&MemDevice) + Send + Sync + 'static,
) {
    check_stopping_on(image("", None), iterations, faults, model);
}

/// Like [`check_stopping`], on a volume whose files are mapped by indirect blocks.
pub fn check_stopping_without_extents(
    iterations: usize,
    faults: &[Fault],
    model: impl Fn(&MemDevice) + Send + Sync + 'static,
) {
    check_stopping_on(image("^extent", None), iterations, faults, model);
}

fn check_stopping_on(
    image: MemDevice,
    iterations: usize,
    faults: &[Fault],
    model: impl Fn(&MemDevice) + Send + Sync + 'static,
) {
    let (model, image) = (Arc::new(model), Arc::new(image));
    search(iterations, faults, |iterations| {
        let (model, image) = (Arc::clone(&model), Arc::clone(&image));
        stopping(iterations, move || model(&image));
    });
}

/// Bytes of a model thread's stack. An inode's range lock and the calls that build it need more
/// than Shuttle's 60 KiB.
const STACK: usize = 256 << 10;

/// Runs `model` under random schedules.
pub fn random(iterations: usize, model: impl Fn() + Send + Sync + 'static) {
    Runner::new(RandomScheduler::new(iterations), config()).run(model);
}

/// Runs `model` under schedules that stop a thread in the middle of a step until the other threads
/// are blocked.
pub fn stopping(iterations: usize, model: impl Fn() + Send + Sync + 'static) {
    Runner::new(PctScheduler::new(3, iterations), config()).run(model);
}

fn config() -> Config {
    let mut config = Config::default();
    config.stack_size = STACK;
    config
}

/// Returns true if `PAREXT4_MODEL_FAULT` names this fault, or is not set.
fn is_wanted(fault: Fault) -> bool {
    std::env::var("PAREXT4_MODEL_FAULT").map_or(true, |name| name == format!("{fault:?}"))
}

/// Runs `iterations` without a fault, then up to [`PATIENCE`] times as many with each of `faults`,
/// which must panic. With `PAREXT4_MODEL_FAULT` set, only the fault of that name is planted.
/// Iterations come in rounds: if `run` uses several schedulers, each has its turn before the first
/// has used all iterations.
pub fn search(iterations: usize, faults: &[Fault], run: impl Fn(usize) + Sync) {
    plant(None);
    run(without_fault(iterations));
    for &fault in faults.iter().filter(|&&fault| is_wanted(fault)) {
        let rounds = || {
            plant(Some(fault));
            (0..PATIENCE).for_each(|_| run(iterations));
        };
        // In a thread of its own: if a panic meets a lock that another task holds, the thread
        // counts as panicking for good.
        let noticed = std::thread::scope(|scope| scope.spawn(rounds).join().is_err());
        assert!(noticed, "the model does not notice {fault:?}");
    }
}

fn image(features: &str, cluster_size: Option<u32>) -> MemDevice {
    let device = MemDevice::new(4 << 20);
    let rubbish = vec![STALE; 4 << 20];
    device.write_at(0, &[IoSlice::new(&rubbish)]).expect("memory takes writes");
    let options = MkfsOptions::new().features(features).expect("features").cluster_size(cluster_size);
    let options = options.block_size(1024).device_is_zero(false);
    mkfs(&device, &options).expect("mkfs");
    device
}

/// Opens a volume on a fork of `image`.
pub fn volume(image: &MemDevice) -> Volume {
    open(Arc::new(image.fork()))
}

/// Opens the volume on a device, with switches of threads within its I/O.
pub fn open<D: Device + 'static>(device: Arc<D>) -> Volume {
    Volume::open_device(Arc::new(YieldingDevice(device)), &options()).expect("the image opens")
}

pub fn open_under(device: Arc<MemDevice>, policy: Policy) -> Volume {
    // With explanations, so that the models cover their locks.
    let options = options().explain(true).research(ResearchOptions::new().policy(policy));
    Volume::open_device(Arc::new(YieldingDevice(device)), &options).expect("the image opens")
}

/// Opens the volume on a device whose I/O is one step, for models of state in memory.
pub fn open_quiet<D: Device + 'static>(device: Arc<D>, split_at: SplitAt) -> Volume {
    Volume::open_device(device, &options().research(ResearchOptions::new().split_at(split_at)))
        .expect("the image opens")
}

pub fn options() -> VolumeOptions {
    // Without background threads: only the model's threads run.
    let cache_size = 256 << 10;
    VolumeOptions::new().commit_interval(None).write_back_interval(None).cache_bytes(cache_size)
}

/// Returns the contents of a file after a crash, if the device keeps all its writes.
pub fn after_crash(device: &MemDevice, path: &str) -> (Volume, DirectFile) {
    let volume = open_quiet(Arc::new(device.fork()), SplitAt::default());
    let file = volume.direct_file(path).expect("the file is there");
    (volume, file)
}

/// Runs two operations in parallel.
pub fn race(
    file: &DirectFile,
    one: impl FnOnce(&DirectFile) + Send + 'static,
    other: impl FnOnce(&DirectFile) + Send + 'static,
) {
    let threads = [spawn(file, one), spawn(file, other)];
    for thread in threads {
        thread.join().expect("no operation panics");
    }
}

pub fn spawn(
    file: &DirectFile,
    work: impl FnOnce(&DirectFile) + Send + 'static,
) -> shuttle::thread::JoinHandle<()> {
    let file = file.clone();
    shuttle::thread::spawn(move || work(&file))
}

/// Yields to other threads at most `times` times.
pub fn yield_randomly(most: usize) {
    for _ in 0..shuttle::rand::thread_rng().gen_range(0..=most) {
        shuttle::thread::yield_now();
    }
}

pub fn write(file: &DirectFile, byte: u8, sectors: usize, offset: u64) {
    file.write_all_at(&vec![byte; sectors * SECTOR], offset).expect("the write succeeds");
}

pub fn read(file: &DirectFile, sectors: usize, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; sectors * SECTOR];
    let len = file.read_at(&mut bytes, offset).expect("the read succeeds");
    bytes.truncate(len);
    bytes
}

/// Writes a block full of `byte`.
pub fn write_block(file: &DirectFile, byte: u8, block: u64) {
    write(file, byte, BLOCK / SECTOR, block * BLOCK as u64);
}

/// Allocates all space for data to another file.
pub fn fill_up(volume: &Volume) {
    let ballast = volume.create_direct("/ballast").unwrap();
    for blocks in [1024, 256, 64, 16, 4, 1] {
        while ballast
            .allocate(ballast.size()..ballast.size() + blocks * BLOCK as u64, FileSize::Extend)
            .is_ok()
        {}
    }
}

/// Returns the byte that fills each sector.
pub fn sectors(bytes: &[u8]) -> Vec<u8> {
    let byte_of = |sector: &[u8]| {
        assert!(sector.iter().all(|&byte| byte == sector[0]), "a sector of several writes");
        sector[0]
    };
    bytes.chunks(SECTOR).map(byte_of).collect()
}

/// Returns the byte that fills each block of a file, up to its end.
pub fn blocks_of(file: &DirectFile, blocks: usize) -> Vec<u8> {
    let sectors = sectors(&read(file, blocks * BLOCK / SECTOR, 0));
    let byte_of = |block: &[u8]| {
        assert!(block.iter().all(|&byte| byte == block[0]), "a block of several writes");
        block[0]
    };
    sectors.chunks(BLOCK / SECTOR).map(byte_of).collect()
}

/// A device that loses writes that were not flushed when it crashes.
#[derive(Debug)]
pub struct LossyDevice {
    now: MemDevice,
    state: Mutex<Unflushed>,
}

#[derive(Debug)]
struct Unflushed {
    durable: MemDevice,
    /// Sectors in the order of their writes.
    sectors: Vec<(u64, Vec<u8>)>,
    /// Whether to record the state just before a flush, and the recorded state.
    wanted: bool,
    left: Option<MemDevice>,
}

impl Unflushed {
    /// Returns the flushed contents with a random subset of the later writes.
    fn crash(&self) -> MemDevice {
        let left = self.durable.fork();
        let mut rng = shuttle::rand::thread_rng();
        // Each write survives with a probability of 50 % or of 95 %.
        let survives = if rng.gen_bool(0.2) { 0.5 } else { 0.95 };
        for (at, sector) in &self.sectors {
            if rng.gen_bool(survives) {
                left.write_at(*at, &[IoSlice::new(sector)]).expect("memory takes writes");
            }
        }
        left
    }
}

impl LossyDevice {
    pub fn new(image: &MemDevice) -> Arc<Self> {
        let state = Unflushed { durable: image.fork(), sectors: Vec::new(), wanted: false, left: None };
        Arc::new(Self { now: image.fork(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, Unflushed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the contents after a crash now: the flushed writes and a random subset of the later
    /// ones.
    pub fn crash(&self) -> MemDevice {
        self.state().crash()
    }

    /// Returns the contents after a crash before one of the flushes during `work`, when most writes
    /// are pending, or after them.
    pub fn crash_during(&self, work: impl FnOnce()) -> MemDevice {
        self.state().wanted = true;
        work();
        let left = self.state().left.take();
        left.unwrap_or_else(|| self.crash())
    }
}

impl Device for LossyDevice {
    forward_device!(this => this.now; size, sector_size, read_only, read_at);

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.now.write_at(offset, bufs)?;
        self.state().sectors.extend(pieces(offset, bufs));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.wanted && shuttle::rand::thread_rng().gen_bool(0.4) {
            state.left = Some(state.crash());
            state.wanted = false;
        }
        for (at, sector) in std::mem::take(&mut state.sectors) {
            state.durable.write_at(at, &[IoSlice::new(&sector)])?;
        }
        drop(state);
        // Writes from now on are not flushed.
        linger(50);
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

//! Many threads, of several users, use the same files through every kind of handle at once, each
//! with many transfers in flight. The reads are checked against the writes, see [`versions`].
//! Processes beside them are killed, see [`clients`].
//!
//! A run has several rounds. Between two of them the volume is remounted read-only, unmounted,
//! checked by e2fsck and mounted again.

mod clients;
mod versions;
mod worker;

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parext4::device::AlignedBuf;
use rustix::fs::OFlags;
use rustix::io::pread;
use testkit::sector::SECTOR;

use self::clients::Killed;
use self::versions::Versions;
use self::worker::Worker;
use crate::mapping::Mapping;
use crate::side::{Kind, Side};
use crate::watch::Watch;

pub use clients::work_until_killed;

/// The least duration of a round.
const ROUND: Duration = Duration::from_secs(5);
/// The duration of a round of a long run, after which the growth of the server can be judged.
const LONG_ROUND: Duration = Duration::from_mins(2);
/// The largest number of rounds.
const ROUNDS: u32 = 8;

/// Number of threads and transfers, and size of the files and of the volume.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub workers: usize,
    /// Limit of the transfers in flight of each worker.
    pub depth: usize,
    pub files: usize,
    /// Sectors of a file that each worker owns, in whole pages.
    pub region: u64,
    /// Bytes that stay free on the volume after the files, which have no blocks yet, are made.
    pub free: Option<u64>,
    /// Number of processes at once that are killed.
    pub clients: usize,
}

/// The state of a run, which its workers share.
struct TestRun<'a> {
    kind: Kind,
    shape: Shape,
    dir: PathBuf,
    /// Start of the names of all files.
    prefix: String,
    files: Vec<Versions>,
    watch: &'a Watch,
    deadline: Instant,
    /// Set when a worker has failed.
    stop: AtomicBool,
    /// Number of completed operations.
    done: AtomicU64,
    /// Number of processes that were started.
    clients: AtomicU64,
}

impl<'a> TestRun<'a> {
    fn new(kind: Kind, shape: Shape, dir: PathBuf, watch: &'a Watch) -> Self {
        let sectors = shape.region * shape.workers as u64;
        let versions = |file| Versions::new(u32::try_from(file).unwrap(), sectors, shape.region);
        Self {
            kind,
            shape,
            dir,
            prefix: String::new(),
            files: (0..shape.files).map(versions).collect(),
            watch,
            deadline: Instant::now(),
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
            clients: AtomicU64::new(0),
        }
    }

    fn path(&self, file: usize) -> PathBuf {
        self.dir.join(format!("{}shared{file}", self.prefix))
    }

    /// Returns the name of the file that only one worker uses.
    fn own_path(&self, worker: usize) -> PathBuf {
        self.dir.join(format!("{}own{worker}", self.prefix))
    }

    fn size(&self) -> u64 {
        self.files[0].len() * SECTOR as u64
    }

    fn is_running(&self) -> bool {
        Instant::now() < self.deadline && !self.stop.load(Ordering::Relaxed)
    }

    /// Returns true if writes may find no space.
    fn is_full(&self) -> bool {
        self.shape.free.is_some_and(|free| free < self.size() * self.files.len() as u64)
    }

    /// Returns true if a write returns success and a later sync reports that it found no space: the
    /// kernel stores it in its cache.
    fn reports_late(&self) -> bool {
        self.is_full() && self.kind == Kind::Ours("cache=writeback")
    }

    fn open(&self, file: usize, writes: bool, direct: bool) -> File {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        let mut options = File::options();
        options.read(true).write(writes).custom_flags(flags.bits().cast_signed());
        options.open(self.path(file)).expect("all users may open the files")
    }

    /// Returns true if blocks are preallocated. Not on a full volume of the kernel's ext4: there,
    /// Linux 6.18 returns stale contents of blocks if it cannot split an unwritten extent.
    fn preallocates(&self) -> bool {
        self.kind != Kind::Kernel || !self.is_full()
    }

    /// Makes a file of `sectors` sectors for all users, which is a hole.
    fn make_file(path: &Path, sectors: u64) -> io::Result<()> {
        let made = File::create(path)?;
        made.set_len(sectors * SECTOR as u64)?;
        made.set_permissions(Permissions::from_mode(0o666))
    }

    fn make_files(&self) {
        for (file, versions) in self.files.iter().enumerate() {
            Self::make_file(&self.path(file), versions.len()).unwrap();
        }
    }

    /// Runs the workers for the duration `time`. Returns the files of clients that were killed.
    fn round(&mut self, time: Duration, seed: u64, tables: &tempfile::TempDir) -> Vec<Killed> {
        self.deadline = Instant::now() + time;
        let run = &*self;
        std::thread::scope(|scope| {
            for nth in 0..run.shape.workers {
                scope.spawn(move || Worker::new(run, nth, seed).work());
            }
            let clients: Vec<_> = (0..run.shape.clients)
                .map(|nth| scope.spawn(move || clients::run(run, nth, seed, tables)))
                .collect();
            clients.into_iter().flat_map(|clients| clients.join().expect("see above")).collect()
        })
    }

    /// Reads all files in every way. Each read must return every completed change.
    fn check_files(&self, when: &str) {
        for (nth, versions) in self.files.iter().enumerate() {
            let oldest = versions.oldest(0, versions.len());
            let len = usize::try_from(self.size()).unwrap();
            for direct in [true, false] {
                let file = self.open(nth, false, direct);
                let mut buf = AlignedBuf::zeroed(len);
                let read = pread(&file, &mut buf[..], 0).unwrap();
                let way = if direct { "past the page cache" } else { "through the page cache" };
                assert_eq!(read, len, "{when}, {way}: file {nth} is too short");
                versions.check(&buf, &oldest).unwrap_or_else(|error| panic!("{when}, {way}: {error}"));
            }
            let mapped =
                Mapping::new(&self.open(nth, false, false), len, false).unwrap().read(0, len).unwrap();
            versions.check(&mapped, &oldest).unwrap_or_else(|error| panic!("{when}, mapped: {error}"));
        }
    }
}

/// Returns the number of rounds of a run.
fn rounds(time: Duration) -> u32 {
    let round = if time < 2 * LONG_ROUND { ROUND } else { LONG_ROUND };
    let rounds = time.as_secs() / round.as_secs();
    u32::try_from(rounds).unwrap_or(ROUNDS).clamp(2, ROUNDS)
}

/// Runs the workers for the duration `time`. `name` repeats their choices. Prints a notice and
/// returns `None` if nothing can be mounted here.
///
/// # Panics
/// If a read returns a version that it must not, or a call fails unexpectedly.
pub fn run(name: &str, seed: u64, kind: Kind, block_size: u32, shape: Shape, time: Duration) -> Option<()> {
    let mut side = Side::mounted(kind, block_size)?;
    let connections = |side: &Side| side.connection().cloned().into_iter().collect();
    // The last thread is this one.
    let last = shape.workers + shape.clients;
    let watch = Watch::start(name, connections(&side), last + 1);
    let mut run = TestRun::new(kind, shape, side.dir(), &watch);
    watch.call(last, || "making files".to_owned(), || run.make_files());
    if let Some(free) = shape.free {
        watch.call(last, || "filling the volume".to_owned(), || side.fill(free));
    }
    let tables = tempfile::tempdir().unwrap();
    for nth in 0..rounds(time) {
        let killed = run.round(time / rounds(time), seed.wrapping_add(nth.into()), &tables);
        watch.call(last, || "comparing the files".to_owned(), || run.check_files("after a round"));
        watch.call(last, || "remounting".to_owned(), || side.remount(|| run.check_files("read-only")));
        watch.call(last, || "mounting again".to_owned(), || side.mount_again(kind));
        let usage = watch.reconnect(connections(&side));
        let check = || {
            run.check_files("mounted again");
            for client in killed {
                client.check("mounted again").unwrap_or_else(|error| panic!("{error}"));
                client.remove();
            }
        };
        watch.call(last, || "comparing the files".to_owned(), check);
        println!("{kind:?}, round {nth}: {usage}");
    }
    let (done, clients) = (run.done.load(Ordering::Relaxed), run.clients.load(Ordering::Relaxed));
    println!("{kind:?}, {shape:?}: {done} operations, {clients} processes killed");
    drop(watch);
    side.finish();
    Some(())
}

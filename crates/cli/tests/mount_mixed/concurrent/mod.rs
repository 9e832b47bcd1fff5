//! Many threads, of several users, use the same files through every kind of handle at once, each with many transfers in
//! flight. The reads are checked against the writes, see [`versions`].

mod versions;
mod worker;

use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parext4::device::AlignedBuf;
use rustix::fs::OFlags;
use rustix::io::pread;
use testkit::sector::SECTOR;

use self::versions::Versions;
use self::worker::Worker;
use crate::mapping::Mapping;
use crate::side::{Kind, Side};
use crate::watch::Watch;

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
}

/// The state of a run, which its workers share.
struct TestRun<'a> {
    kind: Kind,
    shape: Shape,
    dir: PathBuf,
    files: Vec<Versions>,
    watch: &'a Watch,
    deadline: Instant,
    /// Set when a worker has failed.
    stop: AtomicBool,
    /// Number of completed operations.
    done: AtomicU64,
}

impl TestRun<'_> {
    fn path(&self, file: usize) -> PathBuf {
        self.dir.join(format!("shared{file}"))
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

    fn open(&self, file: usize, writes: bool, direct: bool) -> File {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        let mut options = File::options();
        options.read(true).write(writes).custom_flags(flags.bits().cast_signed());
        options.open(self.path(file)).expect("all users may open the files")
    }

    /// Returns true if blocks are preallocated. Not on a full volume of the kernel's ext4: there, Linux 6.18 returns
    /// stale contents of blocks if it cannot split an unwritten extent.
    fn preallocates(&self) -> bool {
        self.kind != Kind::Kernel || !self.is_full()
    }

    /// Makes the files, which are all holes.
    fn make_files(&self) {
        for file in 0..self.files.len() {
            let made = File::create(self.path(file)).unwrap();
            made.set_len(self.size()).unwrap();
            made.set_permissions(Permissions::from_mode(0o666)).unwrap();
        }
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

/// Runs the workers for the duration `time`. `name` repeats their choices. Prints a notice and returns `None` if nothing
/// can be mounted here.
///
/// # Panics
/// If a read returns a version that it must not, or a call fails unexpectedly.
pub fn run(name: &str, seed: u64, kind: Kind, block_size: u32, shape: Shape, time: Duration) -> Option<()> {
    let mut side = Side::mounted(kind, block_size)?;
    let watch = Watch::start(name, side.connection().cloned().into_iter().collect(), shape.workers + 1);
    let sectors = shape.region * shape.workers as u64;
    let run = TestRun {
        kind,
        shape,
        dir: side.dir(),
        files: (0..shape.files)
            .map(|file| Versions::new(u32::try_from(file).unwrap(), sectors, shape.region))
            .collect(),
        watch: &watch,
        deadline: Instant::now() + time,
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
    };
    watch.call(shape.workers, || "making files".to_owned(), || run.make_files());
    if let Some(free) = shape.free {
        watch.call(shape.workers, || "filling the volume".to_owned(), || side.fill(free));
    }
    std::thread::scope(|scope| {
        for nth in 0..shape.workers {
            let run = &run;
            scope.spawn(move || Worker::new(run, nth, seed).work());
        }
    });
    watch.call(shape.workers, || "comparing the files".to_owned(), || run.check_files("after the run"));
    watch.call(shape.workers, || "mounting again".to_owned(), || side.mount_again(kind));
    // Not watched: the watch has looked up the connection before.
    run.check_files("mounted again");
    println!("{kind:?}, {shape:?}: {} operations", run.done.load(Ordering::Relaxed));
    drop(watch);
    side.finish();
    Some(())
}

//! Writers that overwrite and append on a mount, and a record of what they wrote and of what a sync
//! has covered.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::block::{BLOCK, Blocks, fill, sequence};
use crate::interrupt;
use crate::parext4_mount::Mounted;

/// Writers of blocks in one file that all of them share.
const OVERWRITERS: usize = 4;
/// Blocks of each of them.
const PLACES: usize = 64;
/// Writers that append to a file of their own.
const APPENDERS: usize = 2;
/// Blocks of an appended file at most; an appender that reaches it starts again.
const MAX_APPENDED: u64 = 2_000;
/// Blocks of one append at most.
const MAX_APPEND: usize = 16;

/// Numbers of the last write of a place that has started, and of the last one that a sync has
/// covered.
#[derive(Default)]
struct BlockRecord {
    started: AtomicU64,
    synced: AtomicU64,
}

/// The record of all writers.
pub struct Load {
    seed: u64,
    stop: AtomicBool,
    places: Vec<[BlockRecord; PLACES]>,
    /// Number of appended blocks.
    appended: [BlockRecord; APPENDERS],
    syncs: AtomicU64,
    errors: Mutex<Vec<std::io::Error>>,
}

impl Load {
    /// Makes an empty record. `seed` determines the choices of the writers.
    pub fn new(seed: u64) -> Load {
        Load {
            seed,
            stop: AtomicBool::new(false),
            places: (0..OVERWRITERS).map(|_| std::array::from_fn(|_| BlockRecord::default())).collect(),
            appended: Default::default(),
            syncs: AtomicU64::new(0),
            errors: Mutex::default(),
        }
    }

    /// Runs the writers on a mount while `work` runs.
    ///
    /// If `work` fails, the mount's server is killed first, so that no writer hangs.
    ///
    /// # Errors
    /// The errors of `work`, and a wrong block that a writer has read.
    pub fn run(&self, mounted: &mut Mounted, work: impl FnOnce(&mut Mounted) -> Result<()>) -> Result<()> {
        let dir = self.dir(mounted.dir());
        std::fs::create_dir(&dir)?;
        File::open(mounted.dir())?.sync_all()?;
        thread::scope(|scope| {
            let mut writers = Vec::new();
            for writer in 0..OVERWRITERS {
                let dir = &dir;
                writers.push(scope.spawn(move || self.noted(self.overwrite(dir, writer))));
            }
            for writer in 0..APPENDERS {
                let dir = &dir;
                writers.push(scope.spawn(move || self.noted(self.append(dir, writer))));
            }
            let done = work(mounted);
            self.stop.store(true, SeqCst);
            if done.is_err() {
                mounted.kill_server()?;
            }
            let writers = writers
                .into_iter()
                .map(|writer| writer.join().unwrap_or_else(|_| Err(anyhow!("a writer panicked"))));
            // The error of the work is the cause of the others.
            let failed: Vec<_> = writers.filter_map(Result::err).collect();
            done?;
            failed.into_iter().next().map_or(Ok(()), Err)
        })
    }

    /// Waits for `count` more syncs. Fails if the next one takes longer than `limit`.
    pub fn progress(&self, count: u64, limit: Duration) -> Result<()> {
        let (mut syncs, mut last) = (self.syncs(), Instant::now());
        let wanted = syncs + count;
        while syncs < wanted {
            interrupt::check()?;
            self.check_no_errors()?;
            if self.syncs() > syncs {
                (syncs, last) = (self.syncs(), Instant::now());
            }
            ensure!(last.elapsed() < limit, "the writers stand still for {limit:?}");
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Fails if a call of a writer has failed.
    pub fn check_no_errors(&self) -> Result<()> {
        let errors = self.errors();
        ensure!(errors.is_empty(), "calls on the mount failed: {errors:?}");
        Ok(())
    }

    /// Returns the number of syncs that succeeded.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(SeqCst)
    }

    /// Returns the errors of the mount. A writer ends with its first one.
    pub fn errors(&self) -> Vec<Errno> {
        let errors = self.errors.lock().expect("no writer panics");
        errors.iter().filter_map(Errno::from_io_error).collect()
    }

    /// The number of writers.
    pub const WRITERS: usize = OVERWRITERS + APPENDERS;

    /// Returns the folder of this load, so that one volume can serve several loads.
    fn dir(&self, root: &Path) -> PathBuf {
        root.join(format!("load-{:016x}", self.seed))
    }

    /// Notes an error of the mount; passes on a wrong block.
    fn noted(&self, ended: Result<()>) -> Result<()> {
        match ended {
            Err(error) => match error.downcast::<std::io::Error>() {
                Ok(error) => {
                    self.errors.lock().expect("no writer panics").push(error);
                    Ok(())
                }
                Err(other) => Err(other),
            },
            Ok(()) => Ok(()),
        }
    }

    fn runs(&self) -> bool {
        !self.stop.load(SeqCst)
    }

    /// Overwrites places of a shared file, some of them several times between two syncs. Every
    /// second writer writes directly, and reads directly what it has written.
    fn overwrite(&self, dir: &Path, writer: usize) -> Result<()> {
        let id = writer as u64;
        let offset = |place: usize| ((place * OVERWRITERS + writer) * BLOCK) as u64;
        let is_direct = writer.is_multiple_of(2);
        let file = open(&dir.join("shared"), if is_direct { OFlags::DIRECT } else { OFlags::empty() })?;
        File::open(dir)?.sync_all()?;
        let mut rng = Rng::with_seed(self.seed ^ id);
        let mut blocks = Blocks::new(1);
        while self.runs() {
            let mut touched = Vec::new();
            for _ in 0..rng.usize(1..16) {
                // Half of the writes go to few places, which are so written several times before a
                // sync.
                let place = if rng.bool() { rng.usize(..4) } else { rng.usize(..PLACES) };
                let started = &self.places[writer][place].started;
                let number = started.fetch_add(1, SeqCst) + 1;
                fill(blocks.bytes_mut(), id, place as u64, number);
                file.write_all_at(blocks.bytes(), offset(place))?;
                touched.push((place, number));
            }
            if rng.u32(..4) == 0 {
                let (place, _) = touched[rng.usize(..touched.len())];
                let number = self.places[writer][place].started.load(SeqCst);
                file.read_exact_at(blocks.bytes_mut(), offset(place))?;
                let found = sequence(blocks.bytes(), id, place as u64)?;
                ensure!(
                    found == number,
                    "writer {writer} reads write {found} of place {place}, not {number}"
                );
            }
            file.sync_data()?;
            self.syncs.fetch_add(1, SeqCst);
            for (place, number) in touched {
                self.places[writer][place].synced.fetch_max(number, SeqCst);
            }
        }
        Ok(())
    }

    /// Appends blocks and syncs.
    fn append(&self, dir: &Path, writer: usize) -> Result<()> {
        let id = (OVERWRITERS + writer) as u64;
        let file = open(&appended(dir, writer), OFlags::empty())?;
        File::open(dir)?.sync_all()?;
        let mut rng = Rng::with_seed(self.seed ^ id);
        let BlockRecord { started, synced } = &self.appended[writer];
        while self.runs() && started.load(SeqCst) < MAX_APPENDED {
            let first = started.load(SeqCst);
            let count = rng.usize(1..MAX_APPEND);
            let mut blocks = Blocks::new(count);
            for (block, number) in blocks.bytes_mut().chunks_mut(BLOCK).zip(first..) {
                fill(block, id, number, 1);
            }
            started.fetch_add(count as u64, SeqCst);
            file.write_all_at(blocks.bytes(), first * BLOCK as u64)?;
            file.sync_all()?;
            self.syncs.fetch_add(1, SeqCst);
            synced.store(first + count as u64, SeqCst);
        }
        Ok(())
    }

    /// Fails if something that a sync has covered is not on the volume mounted at `root`, or if
    /// something there was never written. After a clean unmount everything that was written
    /// `is_complete`.
    pub fn check(&self, root: &Path, is_complete: bool) -> Result<()> {
        let dir = &self.dir(root);
        let shared = read(&dir.join("shared"))?;
        for (writer, places) in self.places.iter().enumerate() {
            for (place, record) in places.iter().enumerate() {
                let start = (place * OVERWRITERS + writer) * BLOCK;
                record
                    .check(&shared, start, writer as u64, place as u64, is_complete)
                    .with_context(|| format!("writer {writer}, place {place}"))?;
            }
        }
        for (writer, record) in self.appended.iter().enumerate() {
            let id = (OVERWRITERS + writer) as u64;
            let bytes = read(&appended(dir, writer))?;
            let needed = if is_complete { &record.started } else { &record.synced }.load(SeqCst);
            for number in 0..needed {
                let start = usize::try_from(number)? * BLOCK;
                let block = bytes.get(start..start + BLOCK);
                let block =
                    block.with_context(|| format!("block {number} of appender {writer} is missing"))?;
                let found = sequence(block, id, number)?;
                ensure!(found == 1, "block {number} of appender {writer} is lost");
            }
        }
        Ok(())
    }
}

impl BlockRecord {
    fn check(&self, bytes: &[u8], start: usize, writer: u64, place: u64, is_complete: bool) -> Result<()> {
        let (started, synced) = (self.started.load(SeqCst), self.synced.load(SeqCst));
        // The file may end before a place that was never written.
        let found = bytes.get(start..start + BLOCK).map_or(Ok(0), |block| sequence(block, writer, place))?;
        let least = if is_complete { started } else { synced };
        ensure!(
            (least..=started).contains(&found),
            "write {found} is there; write {synced} was synced, write {started} was the last"
        );
        Ok(())
    }
}

fn appended(dir: &Path, writer: usize) -> PathBuf {
    dir.join(format!("appended{writer}"))
}

fn open(path: &Path, flags: OFlags) -> Result<File> {
    let flags = i32::try_from(flags.bits())?;
    Ok(File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)?)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    match std::fs::read(path) {
        // Nothing was synced yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.with_context(|| path.display().to_string()),
    }
}

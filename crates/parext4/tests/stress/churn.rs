//! Many files that are created, written, renamed, removed, opened and closed by many threads,
//! during syncs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parext4::{DirectFile, Error, FileType, Volume};

use testkit::rng::Rng;
use testkit::sector::{SECTOR, Stamp, fill_append, filled, identify_all};
use testkit::volume::{DirectFiles as _, Shape, assert_clean};
use testkit::watchdog::Watchdog;
use testkit::{settings, slowest};

const THREADS: usize = 16;
/// Names that one thread uses for files of its own, and names that all threads share.
const OWN: u64 = 6;
const SHARED: u64 = 16;
const LONGEST: u64 = 96;
const DIRECTORIES: u64 = 4;
/// Size in bytes above which a file is not appended to.
const LARGEST: usize = 256 << 10;

/// A file of one thread, and the contents of its sectors.
type Model = BTreeMap<String, Vec<u8>>;

struct Worker<'a> {
    volume: &'a Volume,
    thread: u32,
    rng: Rng,
    sequence: u64,
    model: Model,
}

impl Worker<'_> {
    fn own_path(&mut self) -> String {
        format!("/d{}/{}-{}", self.rng.below(DIRECTORIES), self.thread, self.rng.below(OWN))
    }

    fn stamp(&mut self, file: u32) -> Stamp {
        self.sequence += 1;
        Stamp { file, writer: self.thread, sequence: self.sequence, origin: 0 }
    }

    fn operation(&mut self) {
        match self.rng.below(100) {
            0..40 => self.write_own(),
            40..55 => self.check_own(),
            55..65 => self.remove_own(),
            65..75 => self.rename_own(),
            75..95 => self.use_shared(),
            95..97 => self.list(),
            _ => self.resize_own(),
        }
    }

    /// Opens the file at `path`, and creates it if it does not exist.
    fn open(&self, path: &str) -> DirectFile {
        loop {
            match self.volume.create_direct(path) {
                Ok(file) => return file,
                Err(Error::Exists(_)) => {}
                Err(error) => panic!("creating {path}: {error}"),
            }
            match self.volume.direct_file(path) {
                Ok(file) => return file,
                // Another thread has removed it.
                Err(Error::NotFound(_)) => {}
                Err(error) => panic!("opening {path}: {error}"),
            }
        }
    }

    fn write_own(&mut self) {
        let path = self.own_path();
        let file = self.open(&path);
        let (first, sectors) = (self.rng.below(LONGEST), self.rng.log_uniform(LONGEST));
        let stamp = self.stamp(self.thread);
        let model = self.model.entry(path).or_default();
        if self.rng.chance(40) && model.len() < LARGEST {
            let mut bytes = vec![0; usize::try_from(sectors).unwrap() * SECTOR];
            fill_append(&mut bytes, stamp);
            assert_eq!(file.append(&bytes).expect("append"), model.len() as u64);
            model.extend_from_slice(&bytes);
        } else {
            let bytes = filled(first, sectors, stamp);
            let start = usize::try_from(first).unwrap() * SECTOR;
            file.write_all_at(&bytes, start as u64).expect("write_at");
            model.resize(model.len().max(start + bytes.len()), 0);
            model[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        match self.rng.below(20) {
            0 => slowest::fsync(|| file.sync_all()).expect("sync_all"),
            1 => slowest::fsync(|| file.sync_data()).expect("sync_data"),
            _ => {}
        }
    }

    fn check_own(&mut self) {
        let path = self.own_path();
        match (self.volume.direct_file(&path), self.model.get(&path)) {
            (Ok(file), Some(model)) => assert!(read(&file) == *model, "{path} is not what was written"),
            (Err(Error::NotFound(_)), None) => {}
            (file, model) => panic!("{path}: {file:?}, but of the model {:?} bytes", model.map(Vec::len)),
        }
    }

    fn remove_own(&mut self) {
        let path = self.own_path();
        let Some(model) = self.model.remove(&path) else { return };
        // The file exists until it is closed.
        let open = self.rng.chance(50).then(|| self.volume.direct_file(&path).expect("open_file"));
        self.volume.remove_file(&path).expect("remove_file");
        if let Some(file) = open {
            assert!(read(&file) == model, "{path} changed when it was removed");
            file.append(&filled(0, 8, self.stamp(self.thread))).expect("append");
        }
    }

    fn rename_own(&mut self) {
        let (from, to) = (self.own_path(), self.own_path());
        match self.model.remove(&from) {
            Some(model) => {
                self.volume.rename(&from, &to).expect("rename");
                self.model.insert(to, model);
            }
            None => assert!(matches!(self.volume.rename(&from, &to), Err(Error::NotFound(_)))),
        }
    }

    fn resize_own(&mut self) {
        let path = self.own_path();
        let Some(model) = self.model.get_mut(&path) else { return };
        let size = usize::try_from(self.rng.below(LONGEST)).unwrap() * SECTOR;
        self.volume.direct_file(&path).expect("open_file").set_len(size as u64).expect("set_len");
        model.resize(size, 0);
    }

    /// Files that all threads write, remove and replace: each sector belongs to one kind.
    fn use_shared(&mut self) {
        let number = self.rng.below(SHARED);
        let path = format!("/d{}/shared-{number}", number % DIRECTORIES);
        let tag = 1000 + u32::try_from(number).unwrap();
        match self.rng.below(10) {
            0..6 => {
                let file = self.open(&path);
                let (first, sectors) = (self.rng.below(LONGEST), self.rng.log_uniform(LONGEST));
                let stamp = self.stamp(tag);
                file.write_all_at(&filled(first, sectors, stamp), first * SECTOR as u64).expect("write_at");
                identify_all(&read(&file), tag, 0).unwrap_or_else(|e| panic!("{path}: {e}"));
            }
            6..8 => match self.volume.remove_file(&path) {
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(error) => panic!("removing {path}: {error}"),
            },
            _ => {
                // A file of the right contents replaces it, whole.
                let own = format!("/new-{}", self.thread);
                let stamp = self.stamp(tag);
                self.volume
                    .create_direct(&own)
                    .expect("create")
                    .append(&filled(0, 4, stamp))
                    .expect("append");
                self.volume.rename(&own, &path).expect("rename");
            }
        }
    }

    fn list(&self) {
        for number in 0..DIRECTORIES {
            for item in self.volume.read_dir(format!("/d{number}")).expect("read_dir") {
                assert_eq!(item.expect("an entry").file_type(), FileType::Regular);
            }
        }
    }
}

fn read(file: &DirectFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap() + SECTOR];
    let count = file.read_at(&mut bytes, 0).expect("read_at");
    bytes.truncate(count);
    bytes
}

fn run(name: &str, shape: Shape) {
    let seed = settings::seed(name);
    let device = Arc::new(shape.make());
    let volume =
        Volume::open_device(Arc::clone(&device) as Arc<_>, &parext4::VolumeOptions::new()).expect("open");
    for number in 0..DIRECTORIES {
        volume.create_dir(format!("/d{number}"), 0o755).expect("mkdir");
    }
    let watchdog = Watchdog::start(name, seed, THREADS + 1);
    let deadline = Instant::now() + settings::seconds(3.0);
    let done = AtomicBool::new(false);
    let models: Vec<Model> = std::thread::scope(|scope| {
        let (volume, watchdog, done) = (&volume, &watchdog, &done);
        let syncer = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                watchdog.watch(THREADS, || slowest::fsync(|| volume.sync()).expect("sync"));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let spawn = |thread: usize| {
            scope.spawn(move || {
                let rng = Rng::new(seed, thread as u64);
                let thread_number = u32::try_from(thread).unwrap();
                let mut worker =
                    Worker { volume, thread: thread_number, rng, sequence: 0, model: Model::new() };
                while Instant::now() < deadline {
                    watchdog.watch(thread, || worker.operation());
                }
                worker.model
            })
        };
        let workers: Vec<_> = (0..THREADS).map(spawn).collect();
        let models: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        syncer.join().expect("the syncing thread failed");
        models.into_iter().map(|model| model.expect("a worker failed")).collect()
    });
    volume.close().expect("close");

    let volume =
        Volume::open_device(Arc::clone(&device) as Arc<_>, &parext4::VolumeOptions::new().read_only(true))
            .expect("open");
    for (path, contents) in models.iter().flatten() {
        let file = volume.direct_file(path).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(read(&file) == *contents, "another open finds other contents in {path}");
    }
    assert_clean(&device, name);
}

#[test]
fn churn_1k() {
    run("churn_1k", Shape::new(128, 1024, true));
}

#[test]
fn churn_4k() {
    run("churn_4k", Shape::new(256, 4096, true));
}

#[test]
fn churn_2k_no_journal() {
    run("churn_2k_no_journal", Shape::new(128, 2048, false));
}

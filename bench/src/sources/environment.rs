//! The storage of all runs: memory, the image or device, its loop device.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use indicatif::BinaryBytes;
use parext4::device::signature;
use parext4::{Device, MemDevice};
use tempfile::TempDir;

use super::cases::{Case, Participant, Scale, Storage, Subject};
use super::memory_group::MemoryGroup;
use super::mount::{CacheMode, FileSystem, Loop, Mount};
use super::workload::Workload;
use super::{calibrate, command};
use crate::engine::Engine;
use crate::outcome::Outcome;
use crate::storage::{self, Image};
use crate::target::{self, CopyTarget, DirTarget, LibTarget, RawTarget};

/// Requests that the simulated device serves at a time.
const PARALLEL: usize = 1024;
/// Bytes that this process uses in a memory control group besides the page cache: stacks, buffers,
/// histograms, kernel objects.
const OWN_MEMORY: u64 = 2 << 20;

/// Returns the size of the image: room for the files and a journal, and at least the smallest size
/// of XFS.
fn image_size(scale: Scale) -> u64 {
    (scale.size * 3).max(384 << 20)
}

/// The storage of all runs. Fields are dropped in order, so the loop device is detached before its
/// image is removed.
#[derive(Debug)]
pub struct Environment {
    loop_device: Option<Loop>,
    /// Path of the image or the given device.
    plain: PathBuf,
    is_device: bool,
    memory: Option<Arc<MemDevice>>,
    /// Latencies found so far, by operations per second.
    latencies: Mutex<BTreeMap<u64, Duration>>,
    peers: Vec<FileSystem>,
    /// Whether this process can enter memory control groups.
    has_memory_groups: bool,
    _image: Option<Image>,
    _dir: Option<TempDir>,
}

impl Environment {
    /// Makes the storage for the cases.
    pub fn set_up(
        device: Option<&Path>,
        dir: Option<&Path>,
        force: bool,
        scale: Scale,
        cases: &[Case],
    ) -> Result<Self> {
        let uses =
            |wanted: fn(Subject) -> bool| cases.iter().flat_map(|row| &row.runs).any(|run| wanted(run.on));
        let uses_memory = uses(|on| matches!(on, Subject::Lib(Storage::Memory | Storage::Simulated)));
        let uses_disk =
            uses(|on| !matches!(on, Subject::Lib(Storage::Memory | Storage::Simulated) | Subject::Copy));
        let mut environment = Self {
            loop_device: None,
            plain: PathBuf::new(),
            is_device: device.is_some(),
            memory: None,
            latencies: Mutex::default(),
            peers: Vec::new(),
            has_memory_groups: false,
            _image: None,
            _dir: None,
        };
        if uses_memory {
            environment.memory = Some(storage::memory(scale.size * 3 / 2)?);
        }
        match device {
            _ if !uses_disk => {}
            Some(device) => environment.use_device(device, force, scale)?,
            None => environment.make_image(dir, scale)?,
        }
        if uses_disk {
            environment.peers = usable_peers();
        }
        if cases.iter().any(|row| row.cache.is_some()) {
            environment.has_memory_groups = has_memory_groups();
        }
        Ok(environment)
    }

    fn use_device(&mut self, path: &Path, force: bool, scale: Scale) -> Result<()> {
        let is_block_device = std::fs::metadata(path)?.file_type().is_block_device();
        let device = storage::open(path, true)?;
        ensure!(is_block_device, "{}: is not a block device", path.display());
        let least = image_size(scale);
        ensure!(device.size() >= least, "{}: needs {}", path.display(), BinaryBytes(least));
        if let Some(what) = signature::find(&*device)?
            && !force
        {
            bail!("{}: holds {what}, which would be destroyed; --force does it", path.display());
        }
        self.plain = path.to_owned();
        Ok(())
    }

    fn make_image(&mut self, dir: Option<&Path>, scale: Scale) -> Result<()> {
        let parent = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        let dir = tempfile::Builder::new().prefix("parext4-bench-").tempdir_in(&parent);
        let dir = dir.with_context(|| parent.display().to_string())?;
        self.plain = dir.path().join("bench.img");
        self._dir = Some(dir);
        self._image = Some(Image::make(&self.plain, image_size(scale))?);
        if rustix::process::geteuid().is_root() {
            match Loop::attach(&self.plain) {
                Ok(device) => self.loop_device = Some(device),
                Err(error) => eprintln!("parext4: no loop device, so no kernel file systems: {error:#}"),
            }
        }
        Ok(())
    }

    /// Returns true if a run with a cache of the given size is possible here.
    pub fn have(&self, cache: Option<u64>, on: Subject) -> bool {
        match on {
            Subject::Lib(Storage::Loop) | Subject::Raw(Storage::Loop) => self.loop_device.is_some(),
            Subject::Lib(_) | Subject::Raw(_) | Subject::Copy => true,
            Subject::FileSystem(peer) => {
                let has_block_device = self.is_device || self.loop_device.is_some();
                let has_cache = cache.is_none() || self.has_memory_groups;
                self.peers.contains(&peer) && (has_block_device || peer.is_program()) && has_cache
            }
        }
    }

    /// Returns the name of the device of a run.
    pub fn device_of(&self, on: Subject) -> String {
        match on {
            Subject::Lib(Storage::Memory) | Subject::Copy | Subject::FileSystem(FileSystem::Null) => {
                "memory".into()
            }
            Subject::Lib(Storage::Simulated) | Subject::Raw(Storage::Memory | Storage::Simulated) => {
                "simulated".into()
            }
            _ if self.is_device => self.plain.display().to_string(),
            Subject::Lib(Storage::Plain) | Subject::Raw(Storage::Plain) => "image".into(),
            Subject::FileSystem(peer) if peer.is_program() => "image".into(),
            _ => "loop".into(),
        }
    }

    /// Performs one run of a case.
    pub fn measure(&self, row: &Case, run: &Participant) -> Result<Outcome> {
        let job = match &row.work {
            Workload::Blocks(job) => run.job(job),
            Workload::Names(names) => return names.run(self.mount(run.on)?.dir()),
            Workload::Tree(tree) => return tree.run(self.mount(run.on)?.dir()),
            Workload::Database(database) => return database.run(self.mount(run.on)?.dir()),
        };
        let engine = Engine { cache_size: row.cache.unwrap_or(run.engine.cache_size), ..run.engine };
        match run.on {
            Subject::FileSystem(_) => {
                let mount = self.mount(run.on)?;
                let _group = row.cache.map(|cache| MemoryGroup::enter(cache + OWN_MEMORY)).transpose()?;
                target::run(&DirTarget::new(mount.dir()), &job)
            }
            Subject::Lib(place) => LibTarget::make(self.device(place, row)?, engine)?.run_and_close(&job),
            Subject::Copy => target::run(&CopyTarget, &job),
            Subject::Raw(place) => target::run(&RawTarget::new(self.device(place, row)?), &job),
        }
    }

    /// Makes and mounts a file system of a peer.
    fn mount(&self, on: Subject) -> Result<Mount> {
        match on {
            Subject::FileSystem(peer) => Mount::new(peer, self.path_of(on)),
            _ => bail!("it is not mounted"),
        }
    }

    fn device(&self, place: Storage, row: &Case) -> Result<Arc<dyn Device>> {
        match place {
            Storage::Memory => Ok(self.memory()?),
            Storage::Simulated => Ok(storage::simulated(self.memory()?, self.latency(row)?, PARALLEL)),
            Storage::Plain | Storage::Loop => storage::open(self.path_of(Subject::Lib(place)), true),
        }
    }

    fn memory(&self) -> Result<Arc<MemDevice>> {
        self.memory.clone().context("no memory was allocated")
    }

    /// Returns the path of the image, its loop device, or the given device.
    fn path_of(&self, on: Subject) -> &Path {
        match (&self.loop_device, on) {
            (Some(device), Subject::Lib(Storage::Loop) | Subject::Raw(Storage::Loop)) => device.device(),
            (Some(device), Subject::FileSystem(FileSystem::Ext4 | FileSystem::Xfs)) => device.device(),
            _ => &self.plain,
        }
    }

    /// Returns the latency of the simulated device in a case. Measures it on the first call.
    pub fn latency(&self, row: &Case) -> Result<Duration> {
        let (Some(before), Workload::Blocks(job)) = (row.before, &row.work) else {
            bail!("a case on a simulated device needs a rate before the change");
        };
        let mut latencies = self.latencies.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(&latency) = latencies.get(&before.to_bits()) {
            return Ok(latency);
        }
        let memory = self.memory()?;
        let latency = calibrate::latency(before, |latency| {
            let device = storage::simulated(Arc::<MemDevice>::clone(&memory), latency, PARALLEL);
            LibTarget::make(device, calibrate::BEFORE)?.run_and_close(job)
        })?;
        latencies.insert(before.to_bits(), latency);
        Ok(latency)
    }
}

/// Returns the peers whose programs are installed and that this user can mount. Prints the reason
/// for each other peer.
fn usable_peers() -> Vec<FileSystem> {
    let is_root = rustix::process::geteuid().is_root();
    let mounted = [CacheMode::Kernel, CacheMode::Writeback, CacheMode::Direct].map(FileSystem::Mounted);
    [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Fuse2fs, FileSystem::Null]
        .into_iter()
        .chain(mounted)
        .filter(|peer| {
            let missing = peer.programs().iter().find(|program| !command::exists(program));
            let why = match missing {
                Some(program) => format!("{program} is not installed"),
                None if !is_root && !peer.is_program() => "only root can mount it".into(),
                None => return true,
            };
            eprintln!("parext4: without {}: {why}", peer.name());
            false
        })
        .collect()
}

/// Returns true if this process can enter a memory control group. Prints the reason if not.
fn has_memory_groups() -> bool {
    match MemoryGroup::enter(1 << 30) {
        Ok(_) => true,
        Err(error) => {
            eprintln!(
                "parext4: no memory control group, so no kernel file systems under memory pressure: {error:#}"
            );
            false
        }
    }
}

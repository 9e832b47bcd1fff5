//! Where the runs take place: memory, the image or device, its loop device; made once for all of them.

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
use super::mount::{Loop, Mount, Peer};
use super::workload::Workload;
use super::{calibrate, command};
use crate::engine::Engine;
use crate::outcome::Outcome;
use crate::storage::{self, Image};
use crate::target::{self, CopyTarget, DirTarget, LibTarget, RawTarget};

/// Requests that the simulated device does at a time.
const PARALLEL: usize = 1024;
/// Bytes that this process itself uses in a memory control group: stacks, buffers, histograms, and kernel objects for them.
const OWN_MEMORY: u64 = 2 << 20;

/// The image for files of so many bytes: room for a journal too, and as much as XFS takes at least.
fn image_size(scale: Scale) -> u64 {
    (scale.size * 3).max(384 << 20)
}

/// All environment. What lies over another comes before it, so that it is taken away first.
#[derive(Debug)]
pub struct Environment {
    loop_device: Option<Loop>,
    /// The image or the device given.
    plain: PathBuf,
    is_device: bool,
    memory: Option<Arc<MemDevice>>,
    /// Latency by operations a second, once found.
    latencies: Mutex<BTreeMap<u64, Duration>>,
    peers: Vec<Peer>,
    /// Whether runs can take place in memory control groups.
    has_memory_groups: bool,
    _image: Option<Image>,
    _dir: Option<TempDir>,
}

impl Environment {
    /// Makes what the cases take.
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

    /// Whether a run can take place here, with a cache of the given size.
    pub fn have(&self, cache: Option<u64>, on: Subject) -> bool {
        match on {
            Subject::Lib(Storage::Loop) | Subject::Raw(Storage::Loop) => self.loop_device.is_some(),
            Subject::Lib(_) | Subject::Raw(_) | Subject::Copy => true,
            Subject::Peer(peer) => {
                let has_block_device = self.is_device || self.loop_device.is_some();
                let has_cache = cache.is_none() || self.has_memory_groups;
                self.peers.contains(&peer) && (has_block_device || peer.is_program()) && has_cache
            }
        }
    }

    /// The name of the device under a run.
    pub fn device_of(&self, on: Subject) -> String {
        match on {
            Subject::Lib(Storage::Memory) | Subject::Copy | Subject::Peer(Peer::Null) => "memory".into(),
            Subject::Lib(Storage::Simulated) | Subject::Raw(Storage::Memory | Storage::Simulated) => {
                "simulated".into()
            }
            _ if self.is_device => self.plain.display().to_string(),
            Subject::Lib(Storage::Plain) | Subject::Raw(Storage::Plain) => "image".into(),
            Subject::Peer(peer) if peer.is_program() => "image".into(),
            _ => "loop".into(),
        }
    }

    /// Does one run of a row.
    pub fn measure(&self, row: &Case, run: &Participant) -> Result<Outcome> {
        let job = match &row.work {
            Workload::Blocks(job) => run.job(job),
            Workload::Names(names) => return names.run(self.mount(run.on)?.dir()),
            Workload::Tree(tree) => return tree.run(self.mount(run.on)?.dir()),
        };
        let engine = Engine { cache_size: row.cache.unwrap_or(run.engine.cache_size), ..run.engine };
        match run.on {
            Subject::Peer(_) => {
                let mount = self.mount(run.on)?;
                let _group = row.cache.map(|cache| MemoryGroup::enter(cache + OWN_MEMORY)).transpose()?;
                target::run(&DirTarget::new(mount.dir()), &job)
            }
            Subject::Lib(place) => LibTarget::make(self.device(place, row)?, engine)?.run_and_close(&job),
            Subject::Copy => target::run(&CopyTarget, &job),
            Subject::Raw(place) => target::run(&RawTarget::new(self.device(place, row)?), &job),
        }
    }

    /// A fresh file system of a peer.
    fn mount(&self, on: Subject) -> Result<Mount> {
        match on {
            Subject::Peer(peer) => Mount::new(peer, self.path_of(on)),
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
        self.memory.clone().context("no memory was set aside")
    }

    /// The image, its loop device, or the device given.
    fn path_of(&self, on: Subject) -> &Path {
        match (&self.loop_device, on) {
            (Some(device), Subject::Lib(Storage::Loop) | Subject::Raw(Storage::Loop)) => device.device(),
            (Some(device), Subject::Peer(Peer::Ext4 | Peer::Xfs)) => device.device(),
            _ => &self.plain,
        }
    }

    /// The latency of the simulated device in a row, found when it is first needed.
    pub fn latency(&self, row: &Case) -> Result<Duration> {
        let (Some(before), Workload::Blocks(job)) = (row.before, &row.work) else {
            bail!("a row on a simulated device says how slow it is");
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

/// Peers whose programs are installed and, if they take it, for whom this is root.
fn usable_peers() -> Vec<Peer> {
    let is_root = rustix::process::geteuid().is_root();
    [Peer::Ext4, Peer::Xfs, Peer::Mounted, Peer::Fuse2fs, Peer::Null]
        .into_iter()
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

/// Whether this process may move itself to a memory control group; says so if not.
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

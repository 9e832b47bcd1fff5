//! The library on any device.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parext4::server::{PageFault, ServerFile};
use parext4::{Device, DirectFile, FileSize, MkfsOptions, OpenOptions, Volume, mkfs};
use parext4_cli::explain;

use super::Target;
use crate::access_order::{Io, Kind};
use crate::buffers::{buffer, fill};
use crate::engine::Engine;
use crate::job::{IoEngine, Job, Layout};
use crate::job_files::{HolePuncher, JobFiles, LONGEST_EXTENT, pages};
use crate::outcome::Outcome;
use crate::queued::VolumeQueue;
use crate::submitter::{Blocking, Submitter};

/// Blocks of the journal: as in a volume of several gigabytes by mke2fs.
const JOURNAL_BLOCKS: u32 = 16384;
/// The journal has at most this fraction of the volume.
const JOURNAL_DIVISOR: u64 = 8;

/// A volume that the library has open.
pub struct LibTarget {
    volume: Volume,
    explain: bool,
}

impl LibTarget {
    /// Makes a volume on `device`, overwriting its contents, and opens it.
    pub fn make(device: Arc<dyn Device>, engine: Engine) -> Result<Self> {
        let block_size = 4096;
        let most = device.size() / u64::from(block_size) / JOURNAL_DIVISOR;
        let options = MkfsOptions::new()
            .block_size(block_size)
            .journal_blocks(JOURNAL_BLOCKS.min(u32::try_from(most).unwrap_or(u32::MAX)));
        mkfs(&*device, &options).context("making a volume")?;
        Self::open(device, engine)
    }

    /// Opens the volume on `device`.
    pub fn open(device: Arc<dyn Device>, engine: Engine) -> Result<Self> {
        Ok(Self { volume: Volume::open_device(device, &engine.open_options())?, explain: engine.explain })
    }

    /// Runs a job and closes the volume.
    pub fn run_and_close(self, job: &Job) -> Result<Outcome> {
        let outcome = super::run(&self, job);
        if self.explain {
            eprint!("{}", explain::describe(&self.volume));
        }
        let closed = self.volume.close().context("closing the volume");
        // The first error is the more specific one.
        let outcome = outcome?;
        closed.map(|()| outcome)
    }
}

impl Target for LibTarget {
    fn prepare(&self, job: &Job) -> Result<Box<dyn JobFiles>> {
        let mut files = Files { volume: self.volume.clone(), files: Vec::new(), paths: Vec::new() };
        if job.fills_cache() {
            files.warm_up(job.size)?;
        }
        for nth in 0..job.file_count() {
            files.add(format!("/bench-{}-{nth}", std::process::id()), job)?;
        }
        self.volume.sync()?;
        Ok(Box::new(files))
    }
}

/// Files in a volume.
struct Files {
    volume: Volume,
    files: Vec<DirectFile>,
    paths: Vec<String>,
}

impl Files {
    /// Fills the page cache with `bytes` bytes of a temporary file, so that it allocates its memory
    /// before the run.
    fn warm_up(&self, bytes: u64) -> Result<()> {
        let path = format!("/bench-{}-warm-up", std::process::id());
        let file = self.volume.open_file(&path, &OpenOptions::read_write().create_new(true))?;
        let filled = fill(bytes, |bytes, offset| Ok(file.write_all_at(bytes, offset)?));
        self.volume.remove_file(&path)?;
        filled
    }

    fn add(&mut self, path: String, job: &Job) -> Result<()> {
        let file = self
            .volume
            .open_direct(&path, &OpenOptions::read_write().create_new(true))
            .with_context(|| format!("making {path}"))?;
        self.paths.push(path);
        self.files.push(file.clone());
        let size = job.file_size();
        match job.layout {
            // Direct writes leave the cache empty; buffered writes fill it.
            Layout::Written if job.direct || job.is_cold() => {
                fill(size, |bytes, offset| Ok(file.write_all_at(bytes, offset)?))?;
            }
            Layout::Written => {
                let cached = file.buffered()?;
                fill(size, |bytes, offset| Ok(cached.write_all_at(bytes, offset)?))?;
                cached.sync_all()?;
            }
            Layout::Unwritten => file.allocate(0..size, FileSize::Extend)?,
            Layout::Hole => file.set_len(size)?,
            Layout::Append => {}
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.files.clear();
        // If the volume has failed, its close reports that.
        for path in &self.paths {
            let _ = self.volume.remove_file(path);
        }
        let _ = self.volume.sync();
    }
}

impl JobFiles for Files {
    fn submitter(&self, job: &Job, file: u32, depth: u32) -> Result<Box<dyn Submitter>> {
        let file = self.files[file as usize].clone();
        if depth > 1 && job.direct {
            return Ok(Box::new(VolumeQueue::new(self.volume.io_queue(depth), file, job, depth)?));
        }
        if job.ioengine == IoEngine::Mmap {
            let file = file.buffered()?;
            return Ok(Box::new(Blocking::new(move |io: &Io| {
                match io.kind {
                    Kind::Sync => file.sync_all()?,
                    kind => pages(io).try_for_each(|page| {
                        file.fault(page, if kind == Kind::Write { PageFault::Store } else { PageFault::Load })
                    })?,
                }
                Ok(())
            })));
        }
        let mut buf = buffer(job.block.max)?;
        if !job.direct {
            // Each thread has its own handle, as separate programs have.
            let file = file.buffered()?;
            return Ok(Box::new(Blocking::new(move |io: &Io| {
                let bytes = &mut buf[..io.len as usize];
                match io.kind {
                    Kind::Read => check_len(file.read_at(bytes, io.offset)?, io)?,
                    Kind::Write => file.write_all_at(bytes, io.offset)?,
                    Kind::Append => drop(file.append(bytes)?),
                    Kind::Sync => file.sync_all()?,
                }
                Ok(())
            })));
        }
        Ok(Box::new(Blocking::new(move |io: &Io| {
            let bytes = &mut buf[..io.len as usize];
            match io.kind {
                Kind::Read => check_len(file.read_at(bytes, io.offset)?, io)?,
                Kind::Write => file.write_all_at(bytes, io.offset)?,
                Kind::Append => drop(file.append(bytes)?),
                Kind::Sync => file.sync_all()?,
            }
            Ok(())
        })))
    }

    fn hole_puncher(&self, _: &Job, file: u32) -> Result<Box<dyn HolePuncher>> {
        Ok(Box::new(Puncher(self.files[file as usize].clone())))
    }

    fn extents(&self) -> Result<Option<u64>> {
        let mut found = 0;
        for file in &self.files {
            let (mut offset, size) = (0, file.size());
            // Holes and unwritten extents do not count.
            while offset < size
                && let Some(data) = file.data_range(offset)?
            {
                offset = data.start;
                while offset < data.end
                    && let Some(place) = file.device_range(offset)?
                {
                    let together = place.end - place.start;
                    found += together.div_ceil(LONGEST_EXTENT);
                    offset += together;
                }
            }
        }
        Ok(Some(found))
    }
}

/// Punches holes with calls of the library.
struct Puncher(DirectFile);

impl HolePuncher for Puncher {
    fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
        Ok(self.0.punch_hole(offset..offset + len)?)
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        Ok(self.0.allocate(offset..offset + len, FileSize::Extend)?)
    }
}

fn check_len(got: usize, io: &Io) -> Result<()> {
    if got as u64 != io.len {
        bail!("a read of {} bytes at {} ended after {got}", io.len, io.offset);
    }
    Ok(())
}

//! Files in a directory of any mounted file system, through plain system calls.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use memmap2::{Advice, MmapRaw};
use parext4::device::open_file_queue;
use rustix::fs::{FallocateFlags, Mode, OFlags, fadvise, fallocate};
use rustix::io::{Errno, pread, pwrite, retry_on_intr, write};
use tempfile::TempDir;

use super::Target;
use crate::access_order::{Io, Kind};
use crate::buffers::{buffer, fill};
use crate::job::{IoEngine, Job, Layout, Rw};
use crate::job_files::{HolePuncher, JobFiles, PAGE, pages};
use crate::queued::DeviceQueue;
use crate::submitter::{Blocking, Submitter};

/// A directory.
pub struct DirTarget {
    dir: PathBuf,
}

impl DirTarget {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }
}

impl Target for DirTarget {
    fn prepare(&self, job: &Job) -> Result<Box<dyn JobFiles>> {
        let dir = tempfile::Builder::new().prefix("parext4-bench-").tempdir_in(&self.dir);
        let dir = dir.with_context(|| self.dir.display().to_string())?;
        let files = Files { dir };
        if job.fills_cache() {
            warm_up(&files.dir.path().join("warm-up"), job)?;
        }
        for nth in 0..job.file_count() {
            let path = files.path(nth);
            make(&path, job).with_context(|| path.display().to_string())?;
        }
        Ok(Box::new(files))
    }
}

/// Files in a directory made for them.
struct Files {
    dir: TempDir,
}

impl Files {
    fn path(&self, nth: u32) -> PathBuf {
        self.dir.path().join(nth.to_string())
    }
}

/// Fills the kernel's page cache with a temporary file, so that it allocates its memory before the
/// run.
fn warm_up(path: &Path, job: &Job) -> Result<()> {
    let file = open(path, job, OFlags::CREATE | OFlags::EXCL)?;
    fill(job.size, |bytes, offset| write_at(&file, bytes, offset))?;
    Ok(std::fs::remove_file(path)?)
}

/// Makes a file in the job's layout.
fn make(path: &Path, job: &Job) -> Result<()> {
    let file = open(path, job, OFlags::CREATE | OFlags::EXCL)?;
    let size = job.file_size();
    match job.layout {
        Layout::Written => fill(size, |bytes, offset| write_at(&file, bytes, offset))?,
        Layout::Unwritten => {
            fallocate(&file, FallocateFlags::empty(), 0, size).context("no allocation of blocks")?;
        }
        Layout::Hole => file.set_len(size)?,
        Layout::Append => {}
    }
    file.sync_all()?;
    if job.is_cold() {
        fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).context("dropping what is cached")?;
        // Pages in the per-CPU batches of the kernel stay. Root can drop them, too.
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
    }
    Ok(())
}

/// Opens a file as the job uses it.
fn open(path: &Path, job: &Job, mut flags: OFlags) -> Result<File> {
    flags |= OFlags::RDWR | OFlags::CLOEXEC;
    flags.set(OFlags::DIRECT, job.direct);
    flags.set(OFlags::APPEND, job.rw == Rw::Append);
    match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        Err(Errno::INVAL) if job.direct => Err(Errno::INVAL).context("no direct I/O (--direct=0)"),
        file => Ok(File::from(file?)),
    }
}

impl JobFiles for Files {
    fn submitter(&self, job: &Job, file: u32, depth: u32) -> Result<Box<dyn Submitter>> {
        // Each thread has an open file of its own, as in programs that do not know of each other.
        let file = open(&self.path(file), job, OFlags::empty())?;
        if job.ioengine == IoEngine::Mmap {
            return Ok(Box::new(Blocking::new(faults(&file)?)));
        }
        if depth > 1 {
            let queue = open_file_queue(file, depth, job.direct)?;
            return Ok(Box::new(DeviceQueue::new(queue, job, depth)?));
        }
        let mut buf = buffer(job.block.max)?;
        Ok(Box::new(Blocking::new(move |io: &Io| {
            let bytes = &mut buf[..io.len as usize];
            match io.kind {
                Kind::Read => check_len(retry_on_intr(|| pread(&file, &mut *bytes, io.offset))?, io.len),
                Kind::Write => write_at(&file, bytes, io.offset),
                Kind::Append => check_len(retry_on_intr(|| write(&file, bytes))?, io.len),
                Kind::Sync => Ok(file.sync_all()?),
            }
        })))
    }

    fn hole_puncher(&self, job: &Job, file: u32) -> Result<Box<dyn HolePuncher>> {
        Ok(Box::new(Puncher(open(&self.path(file), job, OFlags::empty())?)))
    }

    fn extents(&self) -> Result<Option<u64>> {
        let files = std::fs::read_dir(self.dir.path())?.collect::<Result<Vec<_>, _>>()?;
        Ok(files.iter().map(|file| filefrag(&file.path())).sum())
    }
}

/// Faults in pages of a mapping of the file, each by a system call of its own, as nothing else than
/// a look at the memory would. Where the kernel maps several pages at one fault, the calls for the
/// others find them mapped.
fn faults(file: &File) -> Result<impl FnMut(&Io) -> Result<()> + Send + use<>> {
    let mapping = MmapRaw::map_raw(file).context("mapping the file")?;
    Ok(move |io: &Io| {
        let advice = match io.kind {
            Kind::Read => Advice::PopulateRead,
            Kind::Write => Advice::PopulateWrite,
            Kind::Sync => return Ok(mapping.flush()?),
            Kind::Append => bail!("nothing is mapped past the end of a file"),
        };
        pages(io).try_for_each(|page| {
            mapping.advise_range(advice, usize::try_from(page)?, PAGE as usize).context("a page fault")
        })
    })
}

/// Punches holes with fallocate(2).
struct Puncher(File);

impl HolePuncher for Puncher {
    fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.0, flags, offset, len).context("punching a hole")
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        fallocate(&self.0, FallocateFlags::empty(), offset, len).context("allocating")
    }
}

fn write_at(file: &File, bytes: &[u8], offset: u64) -> Result<()> {
    check_len(retry_on_intr(|| pwrite(file, bytes, offset))?, bytes.len() as u64)
}

fn check_len(done: usize, asked: u64) -> Result<()> {
    ensure!(done as u64 == asked, "a request of {asked} bytes ended after {done}");
    Ok(())
}

/// Returns the number of extents of a file by filefrag of e2fsprogs, if the file system tells.
fn filefrag(path: &Path) -> Option<u64> {
    ["filefrag", "/usr/sbin/filefrag"].into_iter().find_map(|program| {
        let output =
            Command::new(program).arg(path).output().ok().filter(|output| output.status.success())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.rsplit(": ").next()?.split(' ').next()?.parse().ok().filter(|&extents| extents > 0)
    })
}

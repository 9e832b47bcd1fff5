//! What is measured: a kind of write, and what it goes to.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use parext4::device::AlignedBuf;
use parext4::{Device, File, FileDevice, Volume};

/// Bytes of every write.
pub const BLOCK: u64 = 4096;
/// Bytes written at once when a file is filled.
const CHUNK: u64 = 1 << 20;

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Over blocks that are written, at random.
    Overwrite,
    /// Half a block over blocks that are written, at random.
    UnalignedOverwrite,
    /// Into blocks that are allocated but not written, at random.
    Unwritten,
    /// Into a hole, at random.
    HoleFill,
    /// At the end.
    Append,
}

/// What the threads write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All threads to one file.
    OneFile,
    /// Each thread to a file of its own.
    FilePerThread,
    /// To the image file itself, without a file system on it.
    Raw,
}

/// One row of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub case: Case,
    pub target: Target,
}

impl Case {
    pub const ALL: [Self; 5] =
        [Self::Overwrite, Self::UnalignedOverwrite, Self::Unwritten, Self::HoleFill, Self::Append];

    pub fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite-4k",
            Self::UnalignedOverwrite => "unaligned-overwrite-2k",
            Self::Unwritten => "unwritten-4k",
            Self::HoleFill => "hole-4k",
            Self::Append => "append-4k",
        }
    }

    /// Bytes of one write.
    pub fn write_len(self) -> u64 {
        if self == Self::UnalignedOverwrite { BLOCK / 2 } else { BLOCK }
    }
}

/// The files that the jobs write.
pub struct Files {
    volume: Volume,
    device: Arc<FileDevice>,
    threads: u32,
    share: u64,
    one: File,
    each: Vec<File>,
    /// Where on the device each thread's raw writes go.
    raw: Vec<u64>,
}

impl Files {
    /// Makes them and writes every block once.
    pub fn make(volume: &Volume, device: &Arc<FileDevice>, threads: u32, share: u64) -> Result<Self> {
        let one = written(volume, "/one", u64::from(threads) * share)?;
        let each =
            (0..threads).map(|nth| written(volume, &format!("/each-{nth}"), share)).collect::<Result<_>>()?;
        let raw =
            (0..threads).map(|nth| reserve(volume, &format!("/raw-{nth}"), share)).collect::<Result<_>>()?;
        volume.sync()?;
        let (volume, device) = (volume.clone(), Arc::clone(device));
        Ok(Self { volume, device, threads, share, one, each, raw })
    }
}

/// A file of so many bytes, all written.
fn written(volume: &Volume, path: &str, len: u64) -> Result<File> {
    let file = volume.create(path, 0o644)?;
    fill(&file, len)?;
    Ok(file)
}

/// Takes `len` bytes that lie together out of the volume, for writes that go straight to the device behind
/// it. Returns where they are.
fn reserve(volume: &Volume, path: &str, len: u64) -> Result<u64> {
    let file = volume.create(path, 0o644)?;
    file.allocate(0, len, false)?;
    fill(&file, len)?;
    match file.device_range(0)? {
        Some((start, together)) if together >= len => Ok(start),
        _ => bail!("the raw writes need {len} bytes that lie together on the device"),
    }
}

fn fill(file: &File, len: u64) -> Result<()> {
    let chunk = AlignedBuf::zeroed(CHUNK as usize);
    for offset in (0..len).step_by(CHUNK as usize) {
        file.write_at(&chunk, offset)?;
    }
    Ok(())
}

impl Job {
    /// All rows: every case on one file and on a file per thread, and raw where the device has such a thing.
    pub fn all() -> Vec<Self> {
        let mut jobs = Vec::new();
        for case in Case::ALL {
            let raw = matches!(case, Case::Overwrite | Case::UnalignedOverwrite).then_some(Target::Raw);
            let targets = [Target::OneFile, Target::FilePerThread].into_iter().chain(raw);
            jobs.extend(targets.map(|target| Self { case, target }));
        }
        jobs
    }

    /// One round. Returns writes per second.
    pub fn run(self, files: &Files, time: Duration) -> Result<f64> {
        match (self.target, self.case) {
            (Target::Raw, _) => {
                let write = |thread: u32, nth: u64, bytes: &[u8]| {
                    let offset = files.raw[thread as usize] + self.place(files.share, nth);
                    Ok(files.device.write_at(offset, &[IoSlice::new(bytes)])?)
                };
                self.round(files, time, write)
            }
            (_, Case::Overwrite | Case::UnalignedOverwrite) => {
                self.files(files, time, &files.one, &files.each)
            }
            _ => self.fresh(files, time),
        }
    }

    /// A round on files that are made for it and removed after.
    fn fresh(self, files: &Files, time: Duration) -> Result<f64> {
        let make = |path: &str, share: u64| -> Result<File> {
            let file = files.volume.create(path, 0o644)?;
            match self.case {
                Case::Unwritten => file.allocate(0, share, false)?,
                Case::HoleFill => file.set_len(share)?,
                _ => {}
            }
            Ok(file)
        };
        let paths: Vec<String> = match self.target {
            Target::OneFile => vec!["/fresh".into()],
            _ => (0..files.threads).map(|nth| format!("/fresh-{nth}")).collect(),
        };
        let share = files.share * u64::from(files.threads) / paths.len() as u64;
        let fresh = paths.iter().map(|path| make(path, share)).collect::<Result<Vec<_>>>()?;
        files.volume.sync()?;
        let rate = self.files(files, time, &fresh[0], &fresh)?;
        drop(fresh);
        for path in &paths {
            files.volume.remove_file(path)?;
        }
        files.volume.sync()?;
        Ok(rate)
    }

    /// A round on one file, or on one file per thread.
    fn files(self, files: &Files, time: Duration, one: &File, each: &[File]) -> Result<f64> {
        self.round(files, time, |thread, nth, bytes| {
            let (file, base) = match self.target {
                Target::OneFile => (one, u64::from(thread) * files.share),
                _ => (&each[thread as usize], 0),
            };
            if self.case == Case::Append {
                return Ok(file.append(bytes).map(drop)?);
            }
            Ok(file.write_at(bytes, base + self.place(files.share, nth))?)
        })
    }

    /// Byte offset of a thread's `nth` write in its share: every block once in a scattered order.
    fn place(self, share: u64, nth: u64) -> u64 {
        // Odd, so it reaches every block of a power of two of them.
        const STEP: u64 = 0x9e37_79b1;
        let blocks = share / BLOCK;
        nth.wrapping_mul(STEP) % blocks * BLOCK + if self.case == Case::UnalignedOverwrite { 1024 } else { 0 }
    }

    /// Runs all threads for `time`, or until every block of their shares was written once where a second
    /// write would be another case.
    fn round(
        self,
        files: &Files,
        time: Duration,
        write: impl Fn(u32, u64, &[u8]) -> Result<()> + Sync,
    ) -> Result<f64> {
        let repeats = matches!(self.case, Case::Overwrite | Case::UnalignedOverwrite);
        let most = if repeats { u64::MAX } else { files.share / BLOCK };
        let done = AtomicU64::new(0);
        let started = Instant::now();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..files.threads)
                .map(|thread| {
                    let (write, done) = (&write, &done);
                    scope.spawn(move || -> Result<()> {
                        let mut bytes = AlignedBuf::zeroed(BLOCK as usize);
                        bytes.fill(u8::try_from(thread).unwrap_or(0));
                        let bytes = &bytes[..usize::try_from(self.case.write_len())?];
                        let mut nth = 0;
                        while nth < most && started.elapsed() < time {
                            write(thread, nth, bytes)?;
                            nth += 1;
                        }
                        done.fetch_add(nth, Ordering::Relaxed);
                        Ok(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        Ok(done.into_inner() as f64 / started.elapsed().as_secs_f64())
    }
}

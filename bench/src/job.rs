//! The description of a run, in the terms of fio.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::BinaryBytes;

/// The kind and order of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Rw {
    /// Reads from the start of the file to its end
    Read,
    /// Writes from the start of the file to its end
    Write,
    /// Reads of blocks in random order
    #[value(name = "randread")]
    RandRead,
    /// Writes of blocks in random order
    #[value(name = "randwrite")]
    RandWrite,
    /// Both, in random order
    #[value(name = "randrw")]
    RandMixed,
    /// Writes at the end of the file
    Append,
}

/// The contents of the files before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// All blocks written
    Written,
    /// Blocks allocated but not written
    Unwritten,
    /// One hole
    Hole,
    /// An empty file, which the run extends
    Append,
}

/// How the jobs share files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// All jobs use one file.
    One,
    /// Each job has a file of its own.
    PerJob,
}

/// The calls that access the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IoEngine {
    /// Blocking calls; a queue, where there is one, at --iodepth above 1
    Auto,
    /// Page faults, as of a program that has mapped the file; for lib:, sim:, mem and dir:
    Mmap,
}

/// Bytes of each operation, uniformly distributed between two bounds, in multiples of the lower
/// bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// The smallest size.
    pub min: u64,
    /// The largest size.
    pub max: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The operations.
    pub rw: Rw,
    /// Contents of the files at the start.
    pub layout: Layout,
    /// How the jobs share files.
    pub files: Files,
    /// Bytes of the one file, or of all files together.
    pub size: u64,
    /// Bytes of each operation.
    pub block: BlockSize,
    /// Offsets are multiples of this number of bytes ...
    pub align: u64,
    /// ... plus this number.
    pub shift: u64,
    /// Percent of reads among mixed operations.
    pub read_percent: u8,
    /// Threads, called jobs as in fio.
    pub numjobs: u32,
    /// Operations that each job keeps in flight.
    pub iodepth: u32,
    /// The calls that the jobs use.
    pub ioengine: IoEngine,
    /// Bypasses the page cache.
    pub direct: bool,
    /// Fills the cache before sequential reads through it.
    pub pre_read: bool,
    /// Largest number of visits to each block, for jobs that visit blocks again.
    pub loops: Option<u32>,
    /// Makes jobs that are ahead wait for the slowest job.
    pub in_step: bool,
    /// The run ends after this time, or when a new file is full.
    pub runtime: Duration,
    /// Time before `runtime` in which operations are not counted.
    pub ramp: Duration,
    /// Makes each job sync its file at the end, within the time measured.
    pub end_fsync: bool,
    /// Has a thread punch holes into the last [`PUNCHED`] bytes of each file and allocate them
    /// again, in parallel to the jobs.
    pub punch: bool,
}

/// Bytes at the end of a file that holes are punched into.
pub const PUNCHED: u64 = 32 << 20;

impl BlockSize {
    /// Returns the sizes from `min` to `max` bytes, in multiples of `min`.
    ///
    /// # Errors
    /// A message for the user if a bound is 0 or above 64 MiB, or `max` is not a multiple of `min`.
    pub fn new(min: u64, max: u64) -> Result<Self, String> {
        match (Self { min, max }) {
            Self { min, max } if min == 0 || max < min => Err("expected a size above 0, or MIN-MAX".into()),
            Self { max, .. } if max > MAX_BLOCK => Err("blocks may have 64M at most".into()),
            Self { min, max } if !max.is_multiple_of(min) => Err("MAX is not a multiple of MIN".into()),
            block => Ok(block),
        }
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let k = |bytes: u64| match bytes.is_multiple_of(1024) {
            true => format!("{}k", bytes / 1024),
            false => bytes.to_string(),
        };
        match self.min == self.max {
            true => f.write_str(&k(self.max)),
            false => write!(f, "{}-{}", k(self.min), k(self.max)),
        }
    }
}

/// Largest operation in bytes. Each operation in flight has a buffer.
const MAX_BLOCK: u64 = 64 << 20;

impl Files {
    /// Returns the name in options and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::PerJob => "per-job",
        }
    }

    /// Parses `1` or `per-job`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "1" | "one" => Ok(Self::One),
            "per-job" => Ok(Self::PerJob),
            _ => Err("expected 1 or per-job".into()),
        }
    }
}

impl IoEngine {
    /// Returns the name in options and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mmap => "mmap",
        }
    }
}

impl Layout {
    /// Returns the name in options and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Unwritten => "unwritten",
            Self::Hole => "hole",
            Self::Append => "append",
        }
    }
}

impl Rw {
    /// Returns the name in options and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::RandMixed => "randrw",
            Self::Append => "append",
        }
    }

    /// Returns true if operations write.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// Returns true if operations read.
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::RandRead | Self::RandMixed)
    }

    /// Returns true if blocks are visited in random order.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandMixed)
    }
}

impl Job {
    /// Returns the number of files.
    pub fn file_count(&self) -> u32 {
        if self.files == Files::One { 1 } else { self.numjobs }
    }

    /// Returns the bytes of each file.
    pub fn file_size(&self) -> u64 {
        let each = self.size / u64::from(self.file_count());
        each - each % self.align
    }

    /// Returns the number of offsets in each file at which an operation may start.
    pub fn positions(&self) -> u64 {
        let size = self.file_size().saturating_sub(if self.punch { PUNCHED } else { 0 });
        (size.saturating_sub(self.shift + self.block.max) / self.align)
            + u64::from(size >= self.shift + self.block.max)
    }

    /// Returns the largest number of passes over a file. On new files, and with an empty cache, a
    /// second pass would measure other work.
    pub fn passes(&self) -> u64 {
        let repeats = !self.is_cold() && (self.layout == Layout::Written || !self.rw.writes());
        if repeats { self.loops.map_or(u64::MAX, u64::from) } else { 1 }
    }

    /// Returns true if the job must start with an empty cache.
    pub fn is_cold(&self) -> bool {
        self.rw == Rw::Read && !self.direct && !self.pre_read
    }

    /// Returns true if a cache needs memory during the run that it did not use when the files were
    /// made. The first use of memory can be slow, in particular on virtual machines. So the cache
    /// is filled once before the run.
    pub fn fills_cache(&self) -> bool {
        !self.direct && (self.is_cold() || self.layout != Layout::Written)
    }

    /// Checks that the options are consistent.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<()> {
        ensure!(self.numjobs > 0 && self.numjobs <= 1024, "--numjobs must be 1 to 1024");
        ensure!(self.iodepth > 0 && self.iodepth <= 4096, "--iodepth must be 1 to 4096");
        ensure!(!self.runtime.is_zero(), "--runtime must be above 0");
        ensure!(self.loops != Some(0), "--loops must be 1 or more");
        ensure!(
            self.ioengine != IoEngine::Mmap || (!self.direct && self.layout != Layout::Append),
            "--ioengine=mmap goes through the page cache (--direct=0), and not past the end of a file"
        );
        ensure!(self.align > 0, "--offset-align must be above 0");
        ensure!(
            (self.rw == Rw::Append) <= (self.layout == Layout::Append),
            "--rw=append starts from an empty file: it goes with --layout=append only"
        );
        ensure!(!self.punch || self.layout == Layout::Written, "--punch goes with --layout=written");
        ensure!(
            self.layout != Layout::Append || self.rw.writes(),
            "--layout=append is an empty file, which has nothing to read"
        );
        ensure!(self.positions() > 0, "--size={}: no file has a whole block", BinaryBytes(self.size));
        Ok(())
    }
}

#[cfg(test)]
impl Job {
    /// Random writes of 4 KiB.
    pub fn sample(size: u64) -> Self {
        Self {
            rw: Rw::RandWrite,
            layout: Layout::Written,
            files: Files::One,
            size,
            block: BlockSize { min: 4096, max: 4096 },
            align: 4096,
            shift: 0,
            read_percent: 50,
            numjobs: 10,
            iodepth: 10,
            ioengine: IoEngine::Auto,
            direct: true,
            pre_read: false,
            loops: None,
            in_step: false,
            runtime: Duration::from_secs(1),
            ramp: Duration::ZERO,
            end_fsync: false,
            punch: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_checked() {
        assert_eq!(BlockSize::new(4096, 1 << 20), Ok(BlockSize { min: 4096, max: 1 << 20 }));
        for (min, max) in [(0, 0), (8192, 4096), (3072, 4096), (1, 128 << 20)] {
            assert!(BlockSize::new(min, max).is_err(), "{min}-{max}");
        }
    }

    #[test]
    fn no_operation_passes_the_end_of_its_file() {
        let mut job = Job::sample(1 << 20);
        assert_eq!((job.file_size(), job.positions()), (1 << 20, 256));
        job.shift = 2048;
        assert_eq!(job.positions(), 255);
        job.files = Files::PerJob;
        assert_eq!((job.file_size(), job.positions()), (25 * 4096, 24));
        (job.punch, job.files, job.size) = (true, Files::One, PUNCHED + (1 << 20));
        assert_eq!(job.positions(), 255);
        (job.punch, job.size) = (false, 0);
        assert_eq!(job.positions(), 0);
        assert!(job.check().is_err());
    }
}

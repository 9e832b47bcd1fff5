//! Overwrites that are made durable one by one, as a database commits.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parext4_cli::interrupt;

use crate::outcome::{OpStats, Outcome};
use crate::runner::cpu_time;

/// Bytes of each write, a block of PostgreSQL's log.
const BLOCK: usize = 8 << 10;
/// Bytes of the file, a segment of PostgreSQL's log.
const SEGMENT: usize = 16 << 20;

/// The call that makes a write durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncCall {
    Fdatasync,
    Fsync,
    /// The write itself, through a handle with `O_DSYNC`.
    OpenDatasync,
}

impl SyncCall {
    pub const ALL: [Self; 3] = [Self::Fdatasync, Self::Fsync, Self::OpenDatasync];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fdatasync => "commit-fdatasync",
            Self::Fsync => "commit-fsync",
            Self::OpenDatasync => "commit-open-datasync",
        }
    }

    fn flags(self) -> i32 {
        match self {
            Self::Fdatasync | Self::Fsync => 0,
            // `OFlags::DSYNC` of rustix has the value of `O_SYNC`.
            Self::OpenDatasync => libc::O_DSYNC,
        }
    }

    fn commit(self, file: &File, block: &[u8]) -> std::io::Result<()> {
        file.write_all_at(block, 0)?;
        match self {
            Self::Fdatasync => file.sync_data(),
            Self::Fsync => file.sync_all(),
            Self::OpenDatasync => Ok(()),
        }
    }
}

/// Writes a segment in `root`, and commits to it for `runtime`.
pub fn run(call: SyncCall, runtime: Duration, root: &Path) -> Result<Outcome> {
    let path = root.join("segment");
    let context = || path.display().to_string();
    std::fs::write(&path, vec![0x5a; SEGMENT]).with_context(context)?;
    let file = File::options().write(true).custom_flags(call.flags()).open(&path).with_context(context)?;
    file.sync_all().with_context(context)?;
    let block = [0xa5; BLOCK];
    let (mut stats, cpu, start) = (OpStats::new()?, cpu_time(), Instant::now());
    while start.elapsed() < runtime {
        interrupt::check()?;
        let now = Instant::now();
        call.commit(&file, &block).with_context(context)?;
        stats.add(BLOCK as u64, now.elapsed());
    }
    Ok(Outcome::of_one_job(stats, start.elapsed(), cpu_time().saturating_sub(cpu)))
}

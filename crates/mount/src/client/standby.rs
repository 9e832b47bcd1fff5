//! The claim of a standby on its directory: a flock(2) lock of the directory, which a standby holds from its start until it has
//! mounted. By the claim, other processes find a standby that has nothing mounted yet, and end it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::image_lock::holders;
use super::process_end::ProcessEnd;

/// Time between two attempts to see that a standby has ended.
const INTERVAL: Duration = Duration::from_secs(1);

/// The claim on a directory. Dropping it releases the directory.
#[derive(Debug)]
pub struct StandbyClaim {
    _dir: File,
}

impl StandbyClaim {
    /// Claims `dir` for the calling process. `None` if another standby has claimed it.
    ///
    /// # Errors
    /// The directory cannot be opened or locked.
    pub fn new(dir: &Path) -> io::Result<Option<Self>> {
        let dir = File::open(dir)?;
        match dir.try_lock() {
            Ok(()) => Ok(Some(Self { _dir: dir })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Ends the standby that has claimed `dir`, and waits for its end. Returns false if there is none.
pub(super) fn end_standby(dir: &Path) -> io::Result<bool> {
    let Some(process) = holders(dir).into_iter().find(|process| has_open(*process, dir)) else {
        return Ok(false);
    };
    let Some(end) = ProcessEnd::of(process) else { return Ok(false) };
    let pid = process.try_into().ok().and_then(Pid::from_raw);
    kill_process(pid.ok_or(io::ErrorKind::InvalidData)?, Signal::TERM)?;
    while !end.happens_within(INTERVAL) {}
    Ok(true)
}

/// Returns true if a server has `dir` open. The list of locks alone does not say so: it has inode numbers only.
fn has_open(process: u32, dir: &Path) -> bool {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let is_server = command.split(|&byte| byte == 0).nth(1) == Some(b"mount");
    let Ok(wanted) = dir.metadata() else { return false };
    let is_dir = |file: io::Result<fs::DirEntry>| {
        let metadata = file.and_then(|file| file.path().metadata());
        metadata.is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    };
    is_server && fs::read_dir(format!("/proc/{process}/fd")).is_ok_and(|mut files| files.any(is_dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_claim() {
        let dir = tempfile::tempdir().unwrap();
        let claim = StandbyClaim::new(dir.path()).unwrap();
        assert!(claim.is_some());
        assert!(StandbyClaim::new(dir.path()).unwrap().is_none());
        // This process is no server.
        assert!(!end_standby(dir.path()).unwrap());
        drop(claim);
        assert!(StandbyClaim::new(dir.path()).unwrap().is_some());
    }
}

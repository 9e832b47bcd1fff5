//! The claim of a standby on its directory: a locked file in the [runtime
//! directory](crate::runtime_dir), which a standby holds from its start until it has mounted.
//! Through the claim, other processes of its user find a standby that has not mounted yet, and end
//! it.
//!
//! The directory itself is not locked, because any user that may read it could lock it.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::patience::{Announce, announced};
use super::process_end::ProcessEnd;
use crate::runtime_dir;

/// End of the names of claims.
const SUFFIX: &str = ".standby";
/// Longest wait for the end of a standby, which may be opening the volume.
const ENDS_WITHIN: Duration = Duration::from_mins(1);

/// The claim on a directory. Dropping it releases the directory.
#[derive(Debug)]
pub struct StandbyClaim(File);

impl StandbyClaim {
    /// Claims `dir`, a path without symbolic links, for the calling process. `None` if another
    /// standby of the same user has claimed it.
    ///
    /// # Errors
    /// The claim cannot be made or locked.
    pub fn new(dir: &Path) -> io::Result<Option<Self>> {
        Self::at(&runtime_dir::make()?.join(runtime_dir::file_name(dir, SUFFIX)))
    }

    fn at(path: &Path) -> io::Result<Option<Self>> {
        let options =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).to_owned();
        let mut file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        write!(file, "{}", std::process::id())?;
        Ok(Some(Self(file)))
    }
}

impl Drop for StandbyClaim {
    fn drop(&mut self) {
        // Clears the file, so that the next standby does not find this process. The file stays: to
        // remove it could remove another standby's claim.
        let _ = self.0.set_len(0);
        let _ = self.0.unlock();
    }
}

/// Ends the standby of the caller that has claimed `dir`, a path without symbolic links, and waits
/// for its end. Returns false if there is no such standby.
pub(super) fn end_standby(dir: &Path, announce: Announce<'_>) -> io::Result<bool> {
    let claims: Vec<PathBuf> = runtime_dir::files_of(dir, SUFFIX).collect();
    let Some(process) = claims.iter().find_map(|claim| claimant(claim)) else { return Ok(false) };
    let Some(end) = ProcessEnd::of(process) else { return Ok(false) };
    let pid = process.try_into().ok().and_then(Pid::from_raw);
    kill_process(pid.ok_or(io::ErrorKind::InvalidData)?, Signal::TERM)?;
    let waits = format!("{}: waiting for the standby to end (process {process})", dir.display());
    if announced(announce, &waits, || end.happens_within(ENDS_WITHIN)) {
        return Ok(true);
    }
    Err(io::Error::other(format!("the standby has not ended yet (process {process})")))
}

/// Returns the process that holds a claim.
fn claimant(claim: &Path) -> Option<u32> {
    let mut file = File::open(claim).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_claim() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("claim");
        assert_eq!(claimant(&path), None);
        let claim = StandbyClaim::at(&path).unwrap();
        assert!(claim.is_some());
        assert!(StandbyClaim::at(&path).unwrap().is_none());
        assert_eq!(claimant(&path), Some(std::process::id()));
        drop(claim);
        assert_eq!(claimant(&path), None);
        assert!(StandbyClaim::at(&path).unwrap().is_some());
    }

    #[test]
    fn a_lock_of_the_directory_is_no_claim() {
        let dir = tempfile::tempdir().unwrap();
        let opened = File::open(dir.path()).unwrap();
        opened.try_lock().unwrap();
        assert!(!end_standby(dir.path(), &|_| ()).unwrap());
    }
}

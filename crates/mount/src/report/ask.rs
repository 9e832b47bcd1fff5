//! The side of who asks.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::io::Errno;

use super::{ATTRIBUTE, Report};
use crate::mounts::mount_on;

/// The longest value of an attribute, in bytes.
const LONGEST: usize = 64 << 10;

/// Why a server told nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Nothing of ours is mounted there.
    #[error("{0} is not a mount of parext4")]
    NotMounted(String),
    /// It lies in a mount.
    #[error("{dir} is not where a volume is mounted; {mount} is")]
    Below {
        /// The path.
        dir: String,
        /// Where the volume is mounted.
        mount: String,
    },
    /// Who asks may not.
    #[error(
        "{0}: only those who may read the directory are told, and without allow_other only who mounted it"
    )]
    Refused(String),
    /// The server has ended, and the mount is left.
    #[error("{0}: the server of this mount has ended; run \"parext4 umount\"")]
    Dead(String),
    /// The answer is none that this version knows.
    #[error("{dir}: the answer is not understood: {cause}")]
    NotUnderstood {
        /// The directory.
        dir: String,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
    /// Anything else.
    #[error("{dir}: {cause}")]
    Failed {
        /// The directory.
        dir: String,
        /// Why.
        cause: io::Error,
    },
}

/// Asks the server of the volume that is mounted on `dir`. Nothing is held meanwhile that would keep it mounted.
///
/// # Errors
/// See [`ReportError`].
pub fn report(dir: &Path) -> Result<Report, ReportError> {
    let name = || dir.display().to_string();
    let mut value = vec![0_u8; LONGEST];
    match getxattr(dir, ATTRIBUTE, &mut value[..]) {
        Ok(len) => serde_json::from_slice(&value[..len])
            .map_err(|cause| ReportError::NotUnderstood { dir: name(), cause }),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Err(match mount_of(dir) {
            Some(mount) => ReportError::Below { dir: name(), mount: mount.display().to_string() },
            None => ReportError::NotMounted(name()),
        }),
        Err(Errno::ACCESS | Errno::PERM) => Err(ReportError::Refused(name())),
        Err(Errno::NOTCONN) => Err(ReportError::Dead(name())),
        Err(error) => Err(ReportError::Failed { dir: name(), cause: error.into() }),
    }
}

/// Where the volume is mounted that a path lies in, if one of ours is.
fn mount_of(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let mount = path.ancestors().find(|dir| mount_on(&mounts, dir).is_some())?;
    Some(mount.to_owned())
}

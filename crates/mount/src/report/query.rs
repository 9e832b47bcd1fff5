//! Reads the report of a mount.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::io::Errno;

use super::{ATTRIBUTE, Report, SYNC_ATTRIBUTE};
use crate::connection::mount_on;

/// The longest value of an attribute, in bytes.
const MAX_VALUE: usize = 64 << 10;

/// Why a report cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// No volume is mounted on the directory by parext4.
    #[error("{0} is not a mount of parext4")]
    NotMounted(String),
    /// The path is inside of a mount.
    #[error("{dir} is inside of a mount; the volume is mounted on {mount}")]
    Below {
        /// The path.
        dir: String,
        /// The directory on which the volume is mounted.
        mount: String,
    },
    /// The caller may not read the directory.
    #[error(
        "{0}: permission denied: the report is for users that may read the directory; without the option allow_other, only for the user that mounted it"
    )]
    Refused(String),
    /// The server has ended without unmounting the directory.
    #[error("{0}: the server of this mount has ended; run \"parext4 umount\"")]
    Dead(String),
    /// The report has another format than that of this version.
    #[error("{dir}: cannot parse the report of the server: {cause}")]
    Unparsable {
        /// The directory.
        dir: String,
        /// The error of the parser.
        cause: serde_json::Error,
    },
    /// A system call failed.
    #[error("{dir}: {cause}")]
    Failed {
        /// The directory.
        dir: String,
        /// The error.
        cause: io::Error,
    },
}

/// Returns the report of the volume that is mounted on `dir`. Opens no file, so it does not keep
/// the volume mounted.
///
/// # Errors
/// See [`ReportError`].
pub fn report(dir: &Path) -> Result<Report, ReportError> {
    ask(dir, ATTRIBUTE)
}

/// Makes the server of the volume that contains `path` make all changes durable, and returns the
/// report after that.
///
/// # Errors
/// If the server cannot sync. [`ReportError::NotMounted`] or [`ReportError::Below`] if the server
/// does not know the attribute, or the caller does not administer the mount.
pub(crate) fn sync_and_report(path: &Path) -> Result<Report, ReportError> {
    ask(path, SYNC_ATTRIBUTE)
}

fn ask(dir: &Path, attribute: &str) -> Result<Report, ReportError> {
    let name = || dir.display().to_string();
    let mut value = vec![0_u8; MAX_VALUE];
    match getxattr(dir, attribute, &mut value[..]) {
        Ok(len) => serde_json::from_slice(&value[..len])
            .map_err(|cause| ReportError::Unparsable { dir: name(), cause }),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Err(match mount_of(dir) {
            Some(mount) => ReportError::Below { dir: name(), mount: mount.display().to_string() },
            None => ReportError::NotMounted(name()),
        }),
        Err(Errno::ACCESS | Errno::PERM) => Err(ReportError::Refused(name())),
        Err(Errno::NOTCONN) => Err(ReportError::Dead(name())),
        Err(error) => Err(ReportError::Failed { dir: name(), cause: error.into() }),
    }
}

/// Returns the directory on which the volume that contains `path` is mounted, if parext4 has
/// mounted it.
fn mount_of(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let mount = path.ancestors().find(|dir| mount_on(&mounts, dir).is_some())?;
    Some(mount.to_owned())
}

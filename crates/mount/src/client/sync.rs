//! Makes all data durable that was written to a mount.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};

use crate::connection::control::Connection;
use crate::report::{Report, ReportError, report, sync_and_report};

/// Time between two checks whether the server has answered the kernel's write-back.
const INTERVAL: Duration = Duration::from_millis(2);

/// The state of a mount after a sync.
#[derive(Debug)]
pub(super) struct Synced {
    /// Whether the server could sync.
    pub outcome: io::Result<()>,
    /// The report of the server, if it answers and does not refuse the caller.
    pub report: Option<Report>,
}

/// Makes the kernel write back its dirty pages of the mount that contains `path`, makes the server
/// sync the volume, and asks it for its report. `path` should be a directory or a regular file; for
/// another file there is no report. With the connection, also waits until all write-back is
/// answered, which syncfs(2) of newer kernels does not. Gives up once the number of requests has
/// not fallen for `timeout`, because that number includes requests of other programs, which may
/// never end.
///
/// Errors of syncfs(2) are ignored, because it reports old errors again. The report lists the
/// write-back that the server has refused.
pub(super) fn sync(path: &Path, connection: Option<&Connection>, timeout: Duration) -> Synced {
    let failed = |error| Synced { outcome: Err(error), report: None };
    let file = match open_quietly(path) {
        Ok(Some(file)) => file,
        Ok(None) => return Synced { outcome: Ok(()), report: None },
        Err(error) => return failed(error),
    };
    let _ = rustix::fs::syncfs(&file);
    if let Some(connection) = connection {
        wait_until_answered(connection, timeout);
    }
    match sync_and_report(path) {
        Ok(report) => Synced { outcome: Ok(()), report: Some(report) },
        Err(ReportError::Refused(_)) => failed(io::ErrorKind::PermissionDenied.into()),
        Err(ReportError::Dead(_)) => failed(io::ErrorKind::NotConnected.into()),
        Err(ReportError::Failed { cause, .. }) => Synced { outcome: Err(cause), report: report(path).ok() },
        Err(_) => Synced { outcome: file.sync_all(), report: report(path).ok() },
    }
}

/// Like [`sync`], without the report.
pub(super) fn sync_all(dir: &Path) -> io::Result<()> {
    sync(dir, None, Duration::ZERO).outcome
}

/// Opens a directory or a regular file. Returns `None` for any other file, because opening it might
/// have an effect.
fn open_quietly(path: &Path) -> io::Result<Option<File>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_dir() && !metadata.is_file() {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(Some(open(path, flags, Mode::empty())?.into()))
}

fn wait_until_answered(connection: &Connection, timeout: Duration) {
    let (mut least, mut deadline) = (u64::MAX, Instant::now() + timeout);
    while let Some(requests) = connection.waiting().filter(|&requests| requests > 0)
        && Instant::now() < deadline
    {
        if requests < least {
            (least, deadline) = (requests, Instant::now() + timeout);
        }
        sleep(INTERVAL);
    }
}

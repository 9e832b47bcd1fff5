//! The last state of a mount. It tells the caller of an unmount whether all changes are durable,
//! which umount(2) does not.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::device::Direct;
use parext4::{Device, DeviceOptions, Error, needs_recovery};
use parext4_storage::{open_device, scheme};

use super::patience::{Announce, announced};
use super::server_process::ServerProcess;
use super::sync::Synced;
use crate::options::MountOptions;
use crate::report::{RefusedWriteBack, Report};

/// Longest wait after the end of the connection until the server has closed its image.
const CLOSES_WITHIN: Duration = Duration::from_mins(5);
/// Longest wait until the server has closed its image if the caller cannot see whether the
/// connection has ended: another mount namespace may hold the volume.
const MAY_CLOSE_WITHIN: Duration = Duration::from_secs(20);
/// Time between two readings of an image on the network, while its server runs.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Time after which an image on the network counts as unreadable if all readings have failed.
const READABLE_WITHIN: Duration = Duration::from_secs(30);

/// The state of a mount at the last sync before it ended.
#[derive(Debug)]
pub(super) struct StateAtSync {
    synced: io::Result<()>,
    /// The last report; `None` if the server refuses the caller, or has ended.
    last: Option<LastReport>,
}

/// The last report of the server.
#[derive(Debug)]
struct LastReport {
    /// The path of the image, and the offset of the volume in it, in bytes.
    image: PathBuf,
    offset: u64,
    /// True if the volume is mounted read-only, or was shut down by a program, so that no program
    /// expects its changes to be kept.
    expects_no_loss: bool,
    /// Why the volume has stopped.
    stopped: Option<String>,
    refused: RefusedWriteBack,
    /// The server's process, if the caller sees it.
    server: Option<ServerProcess>,
}

/// The server and its image after the end of a connection.
enum Closing {
    Closed,
    /// The server runs, and the image on the network could not be read.
    Unreadable,
    /// The server runs, and has the image open.
    Open(u32),
}

impl StateAtSync {
    /// Returns the state after a sync of a mount with the connection number `connection`.
    pub fn new(synced: Synced, connection: &str) -> Self {
        let last = synced.report.and_then(|report| LastReport::new(report, connection));
        Self { synced: synced.outcome, last }
    }

    /// Returns why changes before the sync may not be durable.
    pub fn unsynced(&self) -> Option<String> {
        let error = self.synced.as_ref().err()?;
        let says_nothing =
            [io::ErrorKind::PermissionDenied, io::ErrorKind::NotConnected].contains(&error.kind());
        let is_expected = self.last.as_ref().map_or(says_nothing, |last| last.expects_no_loss);
        (!is_expected).then(|| error.to_string())
    }

    /// Returns why changes before the sync may be lost, for a volume that other mounts hold, whose
    /// end is not known.
    pub fn lost(&self) -> Option<String> {
        let last = self.last.as_ref().filter(|last| !last.expects_no_loss);
        let stopped = last.and_then(|last| last.stopped.clone());
        stopped.or_else(|| self.unsynced()).or_else(|| last.and_then(|last| describe_refused(&last.refused)))
    }

    /// Blocks until the server has closed the image, and returns why changes may be missing in it.
    /// `None` if no changes are missing, or if that is not known. `has_ended` is true if the
    /// connection has ended, so that the server will close the image.
    pub fn close(&self, dir: &Path, has_ended: bool, announce: Announce<'_>) -> Option<String> {
        let Some(last) = &self.last else { return self.unsynced() };
        let dir = dir.display();
        let closing = last.wait_until_closed(
            if has_ended { CLOSES_WITHIN } else { MAY_CLOSE_WITHIN },
            |image, process| {
                (announce, format!("{dir}: waiting for the server to close {image} (process {process})"))
            },
        );
        if let Closing::Open(process) = closing
            && !has_ended
        {
            announce(&format!(
                "{dir} is unmounted; its server still runs (process {process}): another mount namespace may hold the volume"
            ));
            return self.lost();
        }
        if last.expects_no_loss {
            return None;
        }
        match closing {
            Closing::Open(process) => {
                Some(format!("the server has not closed the image yet (process {process})"))
            }
            Closing::Unreadable => Some("the server still runs, and the image could not be read".to_owned()),
            Closing::Closed => self.lost().or_else(|| last.not_closed()),
        }
    }
}

impl LastReport {
    fn new(report: Report, connection: &str) -> Option<Self> {
        let mount = report.mount;
        let mut options = MountOptions::new();
        options.add(&mount.options).ok()?;
        let image = PathBuf::from(mount.image);
        let server = ServerProcess::confirm(mount.pid, connection, &image);
        let expects_no_loss = options.read_only || mount.shut_down;
        let (offset, stopped, refused) = (options.offset, mount.stopped, report.refused);
        Some(Self { image, offset, expects_no_loss, stopped, refused, server })
    }

    /// Blocks until the server has closed the image, for at most `time`.
    fn wait_until_closed<'a>(
        &self,
        time: Duration,
        announcement: impl FnOnce(std::path::Display<'_>, u32) -> (Announce<'a>, String),
    ) -> Closing {
        let Some(server) = &self.server else { return Closing::Closed };
        let (announce, waits) = announcement(self.image.display(), server.pid);
        announced(announce, &waits, || match scheme(self.image.as_os_str()) {
            Some(_) => self.wait_until_closed_remotely(server, time),
            None if server.has_closed_within(time) => Closing::Closed,
            None => Closing::Open(server.pid),
        })
    }

    /// Like [`wait_until_closed`](Self::wait_until_closed), for an image that is not a file that
    /// could be locked. A program that has mounted the volume through the library may run on after
    /// it has closed the volume.
    fn wait_until_closed_remotely(&self, server: &ServerProcess, time: Duration) -> Closing {
        let end = Instant::now() + time;
        let mut readable_until = Instant::now() + READABLE_WITHIN;
        while !server.ends_within(ASK_AGAIN_AFTER) {
            match self.needs_recovery(&self.image) {
                Ok(false) => return Closing::Closed,
                Ok(true) => readable_until = Instant::now() + READABLE_WITHIN,
                Err(_) if Instant::now() >= readable_until => return Closing::Unreadable,
                Err(_) => {}
            }
            if Instant::now() >= end {
                return Closing::Open(server.pid);
            }
        }
        Closing::Closed
    }

    /// Returns why changes may be missing in the image, according to its contents after the server
    /// has closed it. Returns `None` if the image cannot be opened or has no volume, because it is
    /// in use again, was replaced, or its NBD server has ended.
    fn not_closed(&self) -> Option<String> {
        let image = match scheme(self.image.as_os_str()) {
            Some(_) => self.image.clone(),
            // The path may lead to another file by now, even to one whose opening blocks.
            None => self.server.as_ref()?.image()?,
        };
        match needs_recovery(&*self.open(&image).ok()?) {
            Ok(true) => Some("the server did not close the volume cleanly".to_owned()),
            Err(error @ Error::Device { .. }) => Some(format!("the image could not be read: {error}")),
            Ok(false) | Err(_) => None,
        }
    }

    /// Returns true if the image says that the volume was not closed.
    fn needs_recovery(&self, image: &Path) -> io::Result<bool> {
        Ok(needs_recovery(&*self.open(image)?)?)
    }

    fn open(&self, image: &Path) -> io::Result<Arc<dyn Device>> {
        // The page cache is used, because the blocks may be smaller than the sectors of the device.
        let options = DeviceOptions::new().read_only(true).direct(Direct::Never).offset(self.offset);
        open_device(image, &options)
    }
}

/// Describes the files that have lost data; `None` if no file has.
fn describe_refused(refused: &RefusedWriteBack) -> Option<String> {
    let more =
        |count: u64| if count == 1 { "1 other file".to_owned() } else { format!("{count} other files") };
    match (refused.files, refused.first.first()) {
        (0, _) => None,
        (1, Some(first)) => Some(format!("{}: {}", first.file, first.error)),
        (files, Some(first)) => Some(format!("{} and {}: {}", first.file, more(files - 1), first.error)),
        (files, None) => Some(format!("the server could not store data of {files} files")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::LostData;

    #[test]
    fn files_that_have_lost_data_are_described() {
        let describe = |files, names: &[&str]| {
            let lost = |name: &&str| LostData { file: (*name).to_owned(), error: "no space".to_owned() };
            let first = names.iter().map(lost).collect();
            describe_refused(&RefusedWriteBack { files, first, ..RefusedWriteBack::default() })
        };
        assert_eq!(describe(0, &[]), None);
        assert_eq!(describe(1, &["/a"]).unwrap(), "/a: no space");
        assert_eq!(describe(2, &["/a", "/b"]).unwrap(), "/a and 1 other file: no space");
        assert_eq!(describe(3, &["/a"]).unwrap(), "/a and 2 other files: no space");
        assert!(describe(2, &[]).unwrap().contains("2 files"));
    }

    #[test]
    fn a_refused_caller_knows_nothing_of_lost_changes() {
        let state = |kind: io::ErrorKind| StateAtSync { synced: Err(kind.into()), last: None };
        assert_eq!(state(io::ErrorKind::PermissionDenied).unsynced(), None);
        assert_eq!(state(io::ErrorKind::NotConnected).unsynced(), None);
        assert!(state(io::ErrorKind::StorageFull).unsynced().is_some());
    }
}

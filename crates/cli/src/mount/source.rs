//! The volume of a mount: how it is opened, and opened again when a read-only mount becomes
//! writable.
//!
//! While the volume is opened again, its image and its journal stay locked ([`LockHandover`]): a
//! process that waits for the lock could otherwise get it in between, and the mount would have no
//! volume.

use std::io::{self, IoSliceMut};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};
use parext4::device::{AlignedBuf, LockHandover};
use parext4::{Device, DeviceOptions, Volume};
use parext4_mount::{Access, MountOptions, Reopen, Reopening};
use parext4_storage::Location;
use parking_lot::Mutex;
use rustix::fs::access;
use rustix::io::Errno;

use crate::{error, image};

/// Number of bytes at the start of a volume that are compared. They hold the superblock, which
/// every writer changes.
const START: usize = 4096;

/// The image of a mount, and how it is opened.
#[derive(Debug)]
pub struct Source {
    image: PathBuf,
    device: DeviceOptions,
    options: MountOptions,
    /// The first bytes of the volume when it was last open here, and so locked.
    start: Mutex<Option<AlignedBuf>>,
}

impl Source {
    pub fn new(image: &Path, device: DeviceOptions, options: MountOptions) -> Self {
        Self { image: image.to_owned(), device, options, start: Mutex::new(None) }
    }

    /// Returns the options of the mount.
    pub fn options(&self) -> &MountOptions {
        &self.options
    }

    /// Opens the volume. Opens a write-protected image read-only, as mount(8) does, and sets
    /// `read_only` in the options. Returns a warning then.
    pub fn open_first(&mut self) -> Result<(Volume, Option<String>)> {
        let access = if self.options.read_only { Access::Read } else { Access::Write };
        let (device, journal) = (self.device.clone(), DeviceOptions::new());
        let error = match self.open_as(access, device, journal) {
            Err(error) if access == Access::Write && is_write_protected(&self.image, &error) => error,
            opened => return Ok((opened?, None)),
        };
        let (device, journal) = (self.device.clone(), DeviceOptions::new());
        let Ok(volume) = self.open_as(Access::Read, device, journal) else { return Err(error) };
        self.options = self.options.clone().read_only(true);
        Ok((volume, Some(format!("{}: write-protected, mounted read-only", self.image.display()))))
    }

    fn open_as(&self, access: Access, device: DeviceOptions, journal: DeviceOptions) -> Result<Volume> {
        let read_only = access == Access::Read;
        let device = image::open_device(&self.image, &device.read_only(read_only))?;
        let journal = image::open_journal(&journal.read_only(read_only))?;
        let mut start = self.start.lock();
        self.compare(start.as_ref(), &*device)?;
        let options = self.options.clone().read_only(read_only).open_options();
        let opened = image::open_volume_on(&self.image, &device, journal, &options);
        // An open that failed may have replayed the journal.
        *start = read_start(&*device).ok();
        opened
    }

    /// Fails if the volume on `device` begins otherwise than with `start`.
    fn compare(&self, start: Option<&AlignedBuf>, device: &dyn Device) -> Result<()> {
        let found = read_start(device).with_context(|| self.image.display().to_string())?;
        ensure!(
            start.is_none_or(|start| start[..] == found[..]),
            "{}: another program has changed it since it was mounted; unmount it and mount it again",
            self.image.display()
        );
        Ok(())
    }
}

impl Reopen for Source {
    fn begin(&self) -> Result<Box<dyn Reopening + '_>, String> {
        let begun = || -> Result<Locked<'_>> {
            let device = image::open_device(&self.image, &self.device.clone().read_only(true))?;
            self.compare(self.start.lock().as_ref(), &*device)?;
            let journal = image::journal().map(hold).transpose()?.flatten();
            Ok(Locked { source: self, image: hold(&self.image)?, journal })
        };
        Ok(Box::new(begun().map_err(|error| error::describe(&error))?))
    }
}

/// Keeps the lock of an image. `None` for an image on a network, whose locks are of another kind.
fn hold(image: &Path) -> Result<Option<LockHandover>> {
    let location = Location::parse(image::disk(image))?;
    Ok(location.path().map(LockHandover::hold).transpose()?)
}

/// A source whose files stay locked.
struct Locked<'a> {
    source: &'a Source,
    image: Option<LockHandover>,
    journal: Option<LockHandover>,
}

impl Locked<'_> {
    fn open_as(&self, access: Access, lock: bool) -> Result<Volume> {
        let device = self.source.device.clone().handover(self.image.clone()).lock(lock);
        let journal = DeviceOptions::new().handover(self.journal.clone()).lock(lock);
        self.source.open_as(access, device, journal)
    }
}

impl Reopening for Locked<'_> {
    fn open(&self, access: Access) -> Result<Volume, String> {
        let opened = self.open_as(access, true).or_else(|error| match access {
            Access::Read => {
                // Another process has acquired the lock. The server opens the volume without it to
                // read, because the mount would have no volume otherwise.
                ::log::error!("{}: not locked any more", error::describe(&error));
                self.open_as(access, false)
            }
            _ => Err(error),
        });
        opened.map_err(|error| error::describe(&error))
    }
}

/// Returns true if opening an image has failed because the image cannot be written: it is
/// write-protected, or on a file system that is read-only, or the user may only read it. As for
/// mount(8) with a loop device, an immutable file is none of these.
fn is_write_protected(image: &Path, error: &Error) -> bool {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::ReadOnlyFilesystem) => true,
        Some(io::ErrorKind::PermissionDenied) => {
            access(image, rustix::fs::Access::WRITE_OK) == Err(Errno::ACCESS)
        }
        _ => false,
    }
}

fn read_start(device: &dyn Device) -> io::Result<AlignedBuf> {
    let mut start = AlignedBuf::zeroed(START);
    // Opening the volume explains why a shorter one cannot be used.
    if device.size() >= START as u64 {
        device.read_at(0, &mut [IoSliceMut::new(&mut start)])?;
    }
    Ok(start)
}

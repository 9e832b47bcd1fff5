//! The volume of a mount: how it is opened, and opened again when a read-only mount becomes writable.

use std::io::{self, IoSliceMut};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};
use parext4::device::AlignedBuf;
use parext4::{Device, DeviceOptions, Volume};
use parext4_mount::{Access, MountOptions, Reopen};
use parking_lot::Mutex;
use rustix::fs::access;
use rustix::io::Errno;

use crate::{error, image};

/// Number of bytes at the start of a volume that are compared. They hold the superblock, which every writer changes.
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

    /// Opens the volume. Opens a write-protected image read-only, as mount(8) does, and sets `read_only` in the options. Returns a
    /// warning then.
    pub fn open_first(&mut self) -> Result<(Volume, Option<String>)> {
        let access = if self.options.read_only { Access::Read } else { Access::Write };
        let error = match self.open_as(access) {
            Err(error) if access == Access::Write && is_write_protected(&self.image, &error) => error,
            opened => return Ok((opened?, None)),
        };
        let Ok(volume) = self.open_as(Access::Read) else { return Err(error) };
        self.options = self.options.clone().read_only(true);
        Ok((volume, Some(format!("{}: write-protected, mounted read-only", self.image.display()))))
    }

    fn open_as(&self, access: Access) -> Result<Volume> {
        let read_only = access == Access::Read;
        let device = image::open_device(&self.image, &self.device.clone().read_only(read_only))?;
        let mut start = self.start.lock();
        self.compare(start.as_ref(), &*device)?;
        let options = self.options.clone().read_only(read_only).open_options();
        let opened = image::open_volume_on(&self.image, &device, &options);
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
    fn check_unchanged(&self) -> Result<(), String> {
        let device = image::open_device(&self.image, &self.device.clone().read_only(true));
        let checked = device.and_then(|device| self.compare(self.start.lock().as_ref(), &*device));
        checked.map_err(|error| error::describe(&error))
    }

    fn open(&self, access: Access) -> Result<Volume, String> {
        self.open_as(access).map_err(|error| error::describe(&error))
    }
}

/// Returns true if opening an image has failed because the image cannot be written: it is write-protected, or on a file system that is
/// read-only, or the user may only read it. As for mount(8) with a loop device, an immutable file is none of these.
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

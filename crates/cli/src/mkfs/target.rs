//! Opens the device that will hold the volume, unless it holds something or is in use.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parext4::device::{Direct, signature};
use parext4::mmp::{self, MmpUse};
use parext4::{Device, DeviceOptions};
use parext4_storage::{Location, open_device, open_volume_device};

use crate::image_path::is_url;
use crate::{image, in_use};

/// The part of a device that the volume will have.
#[derive(Clone, Copy)]
pub struct Part {
    /// In bytes; 0 except for a volume within a larger file.
    pub offset: u64,
    /// In bytes. `None`: up to the end of the device.
    pub size: Option<u64>,
}

impl Part {
    /// Returns the end of a volume of `size` bytes.
    fn end(self, size: u64) -> Result<u64> {
        size.checked_add(self.offset).context("the size and the offset")
    }

    /// Returns true if the image is a file that gets the size of the volume.
    fn resizes(self, image: &Path) -> bool {
        self.offset == 0 && image.metadata().is_ok_and(|metadata| metadata.is_file())
    }
}

/// Opens the device that will hold the volume. Returns true with it if all its bytes are known to
/// be zero.
///
/// Opens it through the page cache, because a volume may have smaller blocks than the device has
/// sectors.
pub fn open(image: &Path, part: Part, force: bool) -> Result<(Arc<dyn Device>, bool)> {
    let Part { offset, size } = part;
    let options = DeviceOptions::new().direct(Direct::Never).offset(offset);
    if !exists(image)? {
        let Some(size) = size else {
            bail!("{}: no such file; --size says how large to make it", image.display())
        };
        return Ok((open_device(image, &options.create(part.end(size)?))?, true));
    }
    if !force && is_url(image.as_os_str()) {
        refuse_before_the_open(image, &options)?;
    }
    if let Some(size) = size.filter(|_| is_created_by_open(image)) {
        let device = open_volume_device(image, &options.create(part.end(size)?).len(size))?;
        if !force {
            refuse_to_overwrite(image, &*device)?;
        }
        return Ok((device, false));
    }
    if let Some(user) = in_use::describe(image::disk(image)) {
        bail!("{}: in use: {user}", image.display());
    }
    let device = image::when_closed(image, || open_volume_device(image, &options))?;
    if !force {
        refuse_to_overwrite(image, &*device)?;
    }
    let Some(size) = size else { return Ok((device, false)) };
    let is_file = part.resizes(image);
    // The lock belongs to the open file, so the next open would fail.
    drop(device);
    let options = if is_file { options.create(size) } else { options.len(size) };
    Ok((open_device(image, &options)?, is_file))
}

/// Returns false if the image is a file that mkfs must create.
pub fn exists(image: &Path) -> Result<bool> {
    Location::parse(image)?
        .path()
        .map_or(Ok(true), Path::try_exists)
        .with_context(|| image.display().to_string())
}

/// Returns the size of the volume that `open` would make room for, and whether other machines reach
/// the device. Neither creates nor changes anything.
pub fn size(image: &Path, part: Part) -> Result<(u64, bool)> {
    if !exists(image)? {
        let Some(size) = part.size else {
            bail!("{}: no such file; --size says how large it would be", image.display())
        };
        return Ok((size, false));
    }
    let mut options =
        DeviceOptions::new().read_only(true).lock(false).offset(part.offset).direct(Direct::Never);
    if let Some(size) = part.size.filter(|_| !part.resizes(image)) {
        options = options.len(size);
    }
    match (open_device(image, &options), part.size) {
        // An image that mkfs would create is on a network.
        (Err(error), Some(size)) if error.kind() == ErrorKind::NotFound && is_created_by_open(image) => {
            Ok((size, true))
        }
        (device, size) => {
            let device = device?;
            Ok((size.unwrap_or(device.size()), device.sharing().is_shared()))
        }
    }
}

/// Returns whether opening the image creates it, or leaves it as it is.
fn is_created_by_open(image: &Path) -> bool {
    Location::parse(image).is_ok_and(|location| location.is_created_by_open())
}

/// Fails if a device on a network holds a file system or the like. An open for writing could fence
/// the last owner of the device, although nothing is to be overwritten.
fn refuse_before_the_open(image: &Path, options: &DeviceOptions) -> Result<()> {
    match open_device(image, &options.clone().read_only(true).lock(false)) {
        Ok(device) => refuse_to_overwrite(image, &*device),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Fails if the device holds a file system, a partition table or the like.
fn refuse_to_overwrite(image: &Path, device: &dyn Device) -> Result<()> {
    if let Ok(Some(state)) = mmp::read(device)
        && state.usage != MmpUse::Clean
    {
        bail!(
            "{}: a volume that another machine may be using ({state}); use --force to overwrite it",
            image.display()
        );
    }
    match signature::find(device).with_context(|| format!("reading {}", image.display()))? {
        Some(contents) => bail!("{}: holds {contents}; use --force to overwrite it", image.display()),
        None => Ok(()),
    }
}

//! Opens and closes images.

use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use parext4::device::{AlignedBuf, Location, open_device_with_sectors};
use parext4::{Device, DeviceOptions, OpenOptions, Volume};

/// Opens the device of a volume that a user named: direct where possible, locked against other writers.
///
/// A device whose sectors are larger than the volume's blocks is opened through the page cache, which has no
/// such limit.
pub fn open_device(image: &Path, options: &DeviceOptions) -> Result<Arc<dyn Device>> {
    let largest_sector = |device: &dyn Device| {
        block_size(device).map_err(|error| {
            std::io::Error::new(error.kind(), format!("reading {}: {error}", image.display()))
        })
    };
    Ok(open_device_with_sectors(image, options, largest_sector)?)
}

/// Returns the image as other processes find it: an absolute path, or else what the user typed.
pub fn absolute(image: &Path) -> Result<PathBuf> {
    match Location::parse(image)?.path() {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string()),
        None => Ok(image.to_owned()),
    }
}

/// Returns the block size in bytes that a superblock states, `None` if there is none or it is not plausible. The engine
/// checks the superblock itself.
fn block_size(device: &dyn Device) -> std::io::Result<Option<u32>> {
    // kernel documentation, "The Super Block": s_log_block_size, at 0x18 of the superblock at 1024.
    const LOG_BLOCK_SIZE: usize = 1024 + 0x18;
    let mut start = AlignedBuf::zeroed(4096);
    if device.size() < start.len() as u64 {
        return Ok(None);
    }
    device.read_at(0, &mut [IoSliceMut::new(&mut start)])?;
    let field = start[LOG_BLOCK_SIZE..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Ok(1024_u32.checked_shl(field).filter(|_| field <= 6))
}

/// Runs `work` on the volume in `image`, which nobody else writes meanwhile, and changes nothing.
pub fn read<R>(image: &Path, work: impl FnOnce(&Volume) -> Result<R>) -> Result<R> {
    with_volume(image, &OpenOptions::read_only(), work)
}

/// Runs `work` on the volume in `image`, which nobody else uses meanwhile, and closes it.
pub fn write<R>(image: &Path, work: impl FnOnce(&Volume) -> Result<R>) -> Result<R> {
    with_volume(image, &OpenOptions::default(), work)
}

/// Runs `work` on the volume in `image`, opened as `options` say, and closes it.
pub fn with_volume<R>(
    image: &Path,
    options: &OpenOptions,
    work: impl FnOnce(&Volume) -> Result<R>,
) -> Result<R> {
    let device = open_device(image, &DeviceOptions::new().read_only(options.read_only))?;
    let volume = Volume::open(device, options).with_context(|| image.display().to_string())?;
    let result = work(&volume);
    let closed = volume.close().with_context(|| format!("closing {}", image.display()));
    // The first error is the cause of the second.
    let value = result?;
    closed?;
    Ok(value)
}

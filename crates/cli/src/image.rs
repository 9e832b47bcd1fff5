//! Opens and closes images.

use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use parext4::device::{AlignedBuf, Direct};
use parext4::{Device, FileDevice, FileOptions, OpenOptions, Volume};

/// Opens the image as a device: direct where possible, locked against other writers.
///
/// A device whose sectors are larger than the volume's blocks is opened through the page cache, which has no
/// such limit.
pub fn open_device(image: &Path, options: FileOptions) -> Result<Arc<dyn Device>> {
    let device = FileDevice::open(image, &options)?;
    let block_size = block_size(&device).with_context(|| format!("reading {}", image.display()))?;
    if device.is_direct() && block_size.is_some_and(|size| device.sector_size() > size) {
        // The lock is the open file's: it must be given up first.
        drop(device);
        return Ok(Arc::new(FileDevice::open(image, &options.direct(Direct::Never))?));
    }
    Ok(Arc::new(device))
}

/// The block size that the superblock states, in bytes. Whether it is a superblock is for the engine to say.
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
    let device = open_device(image, FileOptions::new().read_only(options.read_only))?;
    let volume = Volume::open(device, options).with_context(|| image.display().to_string())?;
    let result = work(&volume);
    let closed = volume.close().with_context(|| format!("closing {}", image.display()));
    // The first error is the cause of the second.
    let value = result?;
    closed?;
    Ok(value)
}

//! The storage of a volume: image files, memory, and memory with simulated latency.

use std::fs;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use parext4::device::{Direct, SimDevice, SimProfile};
use parext4::{Device, DeviceOptions, FileDevice, MemDevice};
use parext4_storage::open_device;

use super::buffers::fill;

/// An image file; removed when dropped.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
}

impl Image {
    /// Makes an image of `size` bytes, which must not exist, and writes all of it. Otherwise first
    /// writes to the storage below the image would be measured, too.
    pub fn make(path: &Path, size: u64) -> Result<Self> {
        let file = fs::File::create_new(path).with_context(|| path.display().to_string())?;
        let image = Self { path: path.to_owned() };
        file.set_len(size)?;
        let device = FileDevice::open(path, &DeviceOptions::new())?;
        device.allocate().with_context(|| format!("allocating {}", path.display()))?;
        write_all(&device)?;
        device.flush()?;
        Ok(image)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens an image or device; with direct I/O if `direct` and where that is possible.
pub fn open(path: &Path, direct: bool) -> Result<Arc<dyn Device>> {
    let direct = if direct { Direct::Auto } else { Direct::Never };
    Ok(open_device(path, &DeviceOptions::new().direct(direct))?)
}

/// Returns a device in memory, with all of its memory allocated.
pub fn memory(size: u64) -> Result<Arc<MemDevice>> {
    let device = MemDevice::new(size);
    write_all(&device)?;
    Ok(Arc::new(device))
}

/// Returns a device that takes `latency` for each request and serves `parallel` requests at a time.
pub fn simulated(inner: Arc<dyn Device>, latency: Duration, parallel: usize) -> Arc<dyn Device> {
    let profile = SimProfile::new(latency, parallel);
    Arc::new(SimDevice::new(inner, profile))
}

fn write_all(device: &dyn Device) -> Result<()> {
    fill(device.size(), |bytes, offset| Ok(device.write_at(offset, &[IoSlice::new(bytes)])?))
}

//! Creates volumes and journals: `parext4-mkfs`, with the errors of the engine.

use parext4_device::Device;
pub use parext4_mkfs::{Casefold, ExternalJournal, FsType, MkfsError, MkfsOptions, OnError, Summary};

use crate::error::{Error, Result};

/// Creates an empty volume: [`parext4_mkfs::mkfs`].
///
/// ```
/// use parext4::{MemDevice, MkfsOptions, mkfs};
///
/// let summary = mkfs(&MemDevice::new(64 << 20), &MkfsOptions::new().block_size(4096))?;
/// assert_eq!(summary.blocks_count, 16384);
/// # Ok::<(), parext4::Error>(())
/// ```
///
/// # Errors
/// [`Error::Invalid`], before anything is written, if the options do not fit the device. A
/// device error, after which the device holds no volume.
pub fn mkfs(device: &dyn Device, options: &MkfsOptions) -> Result<Summary> {
    Ok(parext4_mkfs::mkfs(device, options)?)
}

/// Returns what [`mkfs`] would create on a device of `size` bytes, and writes nothing.
///
/// # Errors
/// The errors of `mkfs`, except for errors of writes.
pub fn plan(size: u64, options: &MkfsOptions) -> Result<Summary> {
    Ok(parext4_mkfs::plan(size, options)?)
}

/// Creates an empty journal on a device of its own: [`parext4_mkfs::mkfs_journal_device`].
///
/// # Errors
/// [`Error::Invalid`], before anything is written, if the device is too small. A device error.
pub fn mkfs_journal_device(device: &dyn Device, options: &MkfsOptions) -> Result<Summary> {
    Ok(parext4_mkfs::mkfs_journal_device(device, options)?)
}

impl From<MkfsError> for Error {
    fn from(error: MkfsError) -> Self {
        match error {
            MkfsError::Device { what, cause } => Self::Device { what, cause },
            MkfsError::Format(error) => error.into(),
            MkfsError::Invalid(what) => Self::Invalid(what),
            other => Self::Invalid(other.to_string()),
        }
    }
}

//! The files that hold the volume of a copy, which the copy must neither replace nor read.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Result, ensure};

/// Device and inode numbers of the files and block devices that hold a volume.
#[derive(Clone, Debug, Default)]
pub struct VolumeFiles(Vec<(u64, u64)>);

impl VolumeFiles {
    /// Returns the files at `paths`: the image or block device of the volume, and of its journal if
    /// that is a device of its own. Ignores a path without a file.
    pub fn at(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        let ids = paths.into_iter().filter_map(|path| {
            let metadata = path.as_ref().metadata().ok()?;
            Some((metadata.dev(), metadata.ino()))
        });
        Self(ids.collect())
    }

    /// Fails if the file with these numbers is one of them.
    pub(crate) fn refuse(&self, device: u64, inode: u64) -> Result<()> {
        ensure!(!self.0.contains(&(device, inode)), "this file holds the volume itself");
        Ok(())
    }
}

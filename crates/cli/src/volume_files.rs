//! The files that hold the volume of a command, which its copies must neither replace nor read.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, ensure};
use parext4_storage::Location;

use crate::image;

/// Device and inode numbers of the files and block devices that hold a volume.
#[derive(Debug, Default)]
pub struct VolumeFiles(Vec<(u64, u64)>);

impl VolumeFiles {
    /// Returns the files of the volume in `image`: the image, and the journal device that the command line names. A device on a network
    /// is no file.
    pub fn of(image: &Path) -> Self {
        let ids = [Some(image), image::journal()].into_iter().flatten().filter_map(|device| {
            let metadata = Location::parse(image::disk(device)).ok()?.path()?.metadata().ok()?;
            Some((metadata.dev(), metadata.ino()))
        });
        Self(ids.collect())
    }

    /// Fails if the file with these numbers is one of them.
    pub fn refuse(&self, device: u64, inode: u64) -> Result<()> {
        ensure!(!self.0.contains(&(device, inode)), "this file holds the volume itself");
        Ok(())
    }
}

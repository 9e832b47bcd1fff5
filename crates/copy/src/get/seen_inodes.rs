//! The files that a copy has met, and their data. The volume may be corrupt or hostile.
//!
//! Responsible for the limits of a copy: a file is copied once, whatever its number of names, and
//! all files together have no more data than the volume. Not responsible for directories
//! ([`Visited`](crate::tree::Visited)), nor for links to the first copy.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Result, bail, ensure};
use parext4::{InodeNo, Metadata, Volume};

/// Inodes in one chunk of the set.
const CHUNK: u32 = 4096;

/// The files of one link that a copy has met. Needs one bit for each inode of the volume, and an
/// entry for each 4096 of them.
#[derive(Default)]
pub struct SeenInodes(HashMap<u32, Box<[u64; CHUNK as usize / 64]>>);

impl SeenInodes {
    /// Records that the copy meets a file whose inode counts one link.
    ///
    /// # Errors
    /// The copy has met the inode before.
    pub fn meet(&mut self, file: &Metadata) -> Result<()> {
        ensure!(
            self.insert(file.ino),
            "corrupt volume: inode {} has two names, but counts one link",
            file.ino
        );
        Ok(())
    }

    /// Adds an inode. Returns false if the set has it.
    fn insert(&mut self, ino: InodeNo) -> bool {
        let (chunk, at) = (ino.get() / CHUNK, ino.get() % CHUNK);
        let bits = self.0.entry(chunk).or_insert_with(|| Box::new([0; CHUNK as usize / 64]));
        let (word, bit) = (&mut bits[at as usize / 64], 1 << (at % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Bytes of data that further files can have.
pub struct DataLimit(AtomicU64);

impl DataLimit {
    /// Returns the limit for all files of `volume`: its size, or none if its files may share
    /// blocks.
    pub fn of(volume: &Volume) -> Self {
        let may_share = volume.info().features.iter().any(|name| name == "shared_blocks");
        let space = volume.space();
        let limit = if may_share { u64::MAX } else { space.blocks.saturating_mul(space.block_size.into()) };
        Self(AtomicU64::new(limit))
    }

    /// Counts `bytes` of data that were found in `file`.
    ///
    /// # Errors
    /// All data found is more than the volume can have without shared blocks.
    pub fn count(&self, file: &Metadata, bytes: u64) -> Result<()> {
        let rest = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rest| rest.checked_sub(bytes));
        if rest.is_err() {
            bail!("corrupt volume: the files down to inode {} have more data than the volume", file.ino);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_new_once() {
        let mut seen_inodes = SeenInodes::default();
        for ino in [1, 63, 64, 4095, 4096, 4097, u32::MAX] {
            assert!(seen_inodes.insert(InodeNo(ino)) && !seen_inodes.insert(InodeNo(ino)), "{ino}");
        }
    }
}

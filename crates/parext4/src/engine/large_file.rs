//! The feature `large_file`, which a volume gets with its first file of 2 GiB.

use parext4_format::features::RoCompat;

use super::Engine;
use crate::error::Result;

/// The largest size of a file without the feature, in bytes.
const MAX_SMALL: u64 = 0x7fff_ffff;

impl Engine {
    /// Prepares the volume for a file of `size` bytes, before the first handle that sets such a
    /// size: adds the feature if the volume lacks it. The transaction of the feature commits before
    /// the one of the size, or is the same. The caller holds no handle.
    ///
    /// # Errors
    /// If the volume may not be changed.
    pub(crate) fn allow_size(&self, size: u64) -> Result<()> {
        if size <= MAX_SMALL || self.superblock().ro_compat().contains(RoCompat::LARGE_FILE) {
            return Ok(());
        }
        if self.counts().has_ro_compat(RoCompat::LARGE_FILE) {
            return Ok(());
        }
        // One credit: the block of the superblock.
        self.transact(1, |handle| {
            self.counts().add_ro_compat(handle, RoCompat::LARGE_FILE);
            Ok(())
        })
    }
}

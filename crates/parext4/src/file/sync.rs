//! Making a file durable.

use super::DirectFile;
use crate::error::Result;

impl DirectFile {
    /// Makes the file's data durable, and the attributes that are needed to read it back.
    ///
    /// # Errors
    /// An error if the device fails, or has failed before (I8).
    pub fn sync_data(&self) -> Result<()> {
        self.node.settle_cache()?;
        self.node.commit()
    }

    /// Makes the file's data and all its attributes durable.
    ///
    /// # Errors
    /// The errors of [`sync_data`](Self::sync_data).
    pub fn sync_all(&self) -> Result<()> {
        self.node.settle_cache()?;
        self.node.sync()
    }
}

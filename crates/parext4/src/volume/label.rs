//! The label of an open volume.

use parext4_format::superblock::Superblock;

use super::Volume;
use crate::error::{Error, Result};

impl Volume {
    /// Returns the label, without the padding.
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        self.engine.counts().current().label_bytes().to_vec()
    }

    /// Sets the label, and makes it durable. Copies of the superblock keep the one that they have.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is longer than 16 bytes or has a NUL in it; if the volume may not be changed.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > Superblock::MAX_LABEL || label.contains(&0) {
            return Err(Error::invalid(format_args!("the label {:?}", label.escape_ascii().to_string())));
        }
        // The superblock's block.
        self.engine.transact(1, |handle| {
            self.engine.counts().set_label(handle, label);
            Ok(())
        })?;
        self.engine.journal.commit_all().map(drop)
    }
}

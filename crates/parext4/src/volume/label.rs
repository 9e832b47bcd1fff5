//! Reads and sets the label of an open volume.

use parext4_format::superblock::Superblock;

use super::Volume;
use crate::error::{Error, Result};

impl Volume {
    /// Returns the label, without the padding.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// assert_eq!(volume.label(), b"");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        self.engine.counts().current().label_bytes().to_vec()
    }

    /// Sets the label, and writes it to its place on the device, where programs such as blkid(8)
    /// read it. The backup copies of the superblock keep the old label.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.set_label(b"backup")?;
    /// assert_eq!(volume.label(), b"backup");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if the label is longer than 16 bytes or contains a NUL. An error if the
    /// volume cannot be changed.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > Superblock::MAX_LABEL || label.contains(&0) {
            return Err(Error::invalid(format_args!(
                "the label {:?} is longer than 16 bytes or contains a NUL",
                label.escape_ascii().to_string()
            )));
        }
        // One credit: the block of the superblock.
        self.engine.transact(1, |handle| {
            self.engine.counts().set_label(handle, label);
            Ok(())
        })?;
        self.engine.journal().commit_home()
    }
}

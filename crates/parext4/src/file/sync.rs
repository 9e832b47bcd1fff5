//! Making a file durable.

use super::DirectFile;
use crate::error::Result;

impl DirectFile {
    /// Makes the file's data durable, and the attributes that are needed to read it back.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(&parext4::AlignedBuf::zeroed(4096))?;
    /// file.sync_data()?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error if the device fails, or has failed before (I8).
    pub fn sync_data(&self) -> Result<()> {
        self.node.write_back_data()?;
        self.node.commit()
    }

    /// Makes the file's data and all its attributes durable.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(&parext4::AlignedBuf::zeroed(4096))?;
    /// file.sync_all()?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`sync_data`](Self::sync_data).
    pub fn sync_all(&self) -> Result<()> {
        self.node.write_back_data()?;
        self.node.sync()
    }
}

//! Syncs of buffered files: dirty data is written back, then a commit makes it durable, as for
//! direct writes.

use std::ops::Range;

use rangelock::ByteRange;

use super::File;
use crate::error::Result;
use crate::page_cache::PageRange;

impl File {
    /// Makes the file's data durable, and the attributes that are needed to read it back.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(b"a record that survives a crash")?;
    /// file.sync_data()?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error if the device fails, or has failed before (I8). Each handle reports a failed
    /// write-back once, also one in the background.
    pub fn sync_data(&self) -> Result<()> {
        self.write_back(PageRange::ALL)?;
        self.file.node.commit()
    }

    /// Makes the file's data and all its attributes durable.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(b"text")?;
    /// file.sync_all()?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`sync_data`](Self::sync_data).
    pub fn sync_all(&self) -> Result<()> {
        self.write_back(PageRange::ALL)?;
        self.file.inode_ref().sync()
    }

    /// Makes the file's data in `range` durable, in bytes. Does nothing for a range without bytes.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 4096)?;
    /// file.sync_range(4096..4100)?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`sync_data`](Self::sync_data).
    pub fn sync_range(&self, range: Range<u64>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let end = self.file.node.end_of(range.start, range.end - range.start)?;
        self.write_back(self.file.engine().page_size().touching(ByteRange::new(range.start, end)))?;
        self.file.node.commit()
    }

    /// Like [`sync_range`](Self::sync_range), for data that was just written, and with all
    /// attributes.
    pub(super) fn sync_all_written(&self, offset: u64, len: u64) -> Result<()> {
        self.write_back(self.file.engine().page_size().touching(ByteRange::new(offset, offset + len)))?;
        self.file.inode_ref().sync()
    }

    fn write_back(&self, pages: PageRange) -> Result<()> {
        let written = self.file.node.write_back(pages);
        // Reports the write-back error first: it is more specific than the error of a stopped
        // volume.
        self.cached()?.failures.check(&self.heard)?;
        written
    }
}

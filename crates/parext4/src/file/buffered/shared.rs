//! Operations that buffered and direct files share: on the space and the map of a file, and its
//! statistics.
//!
//! Each goes to the [`DirectFile`], which writes dirty pages back before it reads the map, and
//! drops or zeroes pages over what it changes.

use std::ops::Range;

use super::File;
use crate::error::Result;
#[cfg(doc)]
use crate::file::DirectFile;
use crate::file::{FileExtent, FileSize};
use crate::namespace::{FileTimes, SetAttributes};
use crate::stats::{Explanation, Stats};

impl File {
    /// Allocates the blocks of `range`, in bytes, which read as zeros until written, like
    /// [`DirectFile::allocate`]. Blocks until operations on the same bytes have completed.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use parext4::FileSize;
    ///
    /// file.allocate(0..10_000, FileSize::Extend)?;
    /// assert_eq!((file.size(), file.fiemap(0..u64::MAX)?[0].unwritten), (10_000, true));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`DirectFile::allocate`].
    pub fn allocate(&self, range: Range<u64>, size: FileSize) -> Result<()> {
        self.file.allocate(range, size)
    }

    /// Frees the blocks of `range`, in bytes, which then read as zeros, like
    /// [`DirectFile::punch_hole`]. Blocks until operations on the same bytes have completed.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&[7; 10_000], 0)?;
    /// file.punch_hole(100..9900)?;
    /// let mut bytes = [0; 10_000];
    /// file.read_exact_at(&mut bytes, 0)?;
    /// assert_eq!((bytes[99], bytes[100], bytes[9899], bytes[9900]), (7, 0, 0, 7));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`DirectFile::punch_hole`].
    pub fn punch_hole(&self, range: Range<u64>) -> Result<()> {
        self.file.punch_hole(range)
    }

    /// Makes the bytes of `range` read as zeros, on allocated blocks, like
    /// [`DirectFile::zero_range`]. Blocks until operations on the same bytes have completed.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use parext4::FileSize;
    ///
    /// file.write_all_at(b"secret", 0)?;
    /// file.zero_range(0..4, FileSize::Keep)?;
    /// assert_eq!(volume.read("/file")?, b"\0\0\0\0et");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`DirectFile::zero_range`].
    pub fn zero_range(&self, range: Range<u64>, size: FileSize) -> Result<()> {
        self.file.zero_range(range, size)
    }

    /// Removes the bytes of `range` from the file, like [`DirectFile::collapse_range`]: the bytes
    /// after it move down. Blocks until operations on the bytes from its start on have completed.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&[7; 10_000], 0)?;
    /// file.collapse_range(0..4096)?;
    /// assert_eq!(file.size(), 5904);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`DirectFile::collapse_range`].
    pub fn collapse_range(&self, range: Range<u64>) -> Result<()> {
        self.file.collapse_range(range)
    }

    /// Inserts a hole that is then `range`, in bytes, like [`DirectFile::insert_range`]: the bytes
    /// from its start on move up. Blocks until operations on these bytes have completed.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&[7; 10_000], 0)?;
    /// file.insert_range(4096..8192)?;
    /// assert_eq!((file.seek_hole(0)?, file.seek_data(4096)?, file.size()), (4096, 8192, 14_096));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`DirectFile::insert_range`].
    pub fn insert_range(&self, range: Range<u64>) -> Result<()> {
        self.file.insert_range(range)
    }

    /// Returns the extents of the bytes in `range`, in order, like [`DirectFile::fiemap`]. Blocks
    /// until the dirty pages of the file are written back.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 8192)?;
    /// let extents = file.fiemap(0..u64::MAX)?;
    /// assert_eq!((extents.len(), extents[0].offset), (1, 8192));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a corrupt map, or of the write-back.
    pub fn fiemap(&self, range: Range<u64>) -> Result<Vec<FileExtent>> {
        self.file.fiemap(range)
    }

    /// Returns the first range of written data at or after byte `offset`, in bytes, or `None`, like
    /// [`DirectFile::data_range`]. Blocks until the dirty pages of the file are written back.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 8192)?;
    /// assert_eq!(file.data_range(0)?, Some(8192..8196));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a corrupt map, or of the write-back.
    pub fn data_range(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.file.data_range(offset)
    }

    /// Returns the first byte at or after `offset` that was written (`SEEK_DATA`), like
    /// [`DirectFile::seek_data`]. Blocks until the dirty pages of the file are written back.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 8192)?;
    /// assert_eq!(file.seek_data(0)?, 8192);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NothingAfter`](crate::Error::NothingAfter) if there is none; the errors of
    /// [`data_range`](Self::data_range).
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.file.seek_data(offset)
    }

    /// Returns the first byte at or after `offset` that is in a hole (`SEEK_HOLE`), like
    /// [`DirectFile::seek_hole`]. Blocks until the dirty pages of the file are written back.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 0)?;
    /// assert_eq!(file.seek_hole(0)?, 4, "the end of the file");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NothingAfter`](crate::Error::NothingAfter) if the file ends at or before `offset`;
    /// the errors of [`data_range`](Self::data_range).
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.file.seek_hole(offset)
    }

    /// Returns the range of the device with the written data that starts at byte `offset`, or
    /// `None`, like [`DirectFile::device_range`]. Blocks until the dirty pages of the file are
    /// written back.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&[7; 4096], 0)?;
    /// let place = file.device_range(0)?.expect("written data");
    /// assert_eq!(place.end - place.start, 4096);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a corrupt map, or of the write-back.
    pub fn device_range(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.file.device_range(offset)
    }

    /// Sets the permission bits, `0o7777` at most, as fchmod(2). Blocks while the journal has no
    /// space.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let file = volume.create_file("/file")?;
    /// file.set_permissions(0o600)?;
    /// assert_eq!(file.metadata().permissions, 0o600);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::set_attributes`](crate::InodeRef::set_attributes).
    pub fn set_permissions(&self, permissions: u16) -> Result<()> {
        self.inode_ref().set_attributes(&SetAttributes::new().permissions(permissions))
    }

    /// Sets the owner and the group, as [`std::os::unix::fs::fchown`] does. `None` leaves one
    /// unchanged. Clears the set-ID bits. Blocks while the journal has no space.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let file = volume.create_file("/file")?;
    /// file.chown(Some(1000), None)?;
    /// assert_eq!((file.metadata().uid, file.metadata().gid), (1000, 0));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Volume::chown`](crate::Volume::chown).
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.inode_ref().set_attributes(&SetAttributes::new().uid(uid).gid(gid))
    }

    /// Sets times, as [`std::fs::File::set_times`] does. Blocks while the journal has no space.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::{FileTimes, Timestamp};
    ///
    /// let file = volume.create_file("/file")?;
    /// file.set_times(FileTimes::new().set_modified(Timestamp { seconds: 7, nanoseconds: 0 }))?;
    /// assert_eq!(file.metadata().mtime.seconds, 7);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::set_attributes`](crate::InodeRef::set_attributes).
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.inode_ref().set_attributes(&times.into())
    }

    /// Returns statistics of the operations on the file's data, like [`DirectFile::stats`]. Does
    /// not block.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 0)?;
    /// assert_eq!(file.stats().admitted().total(), 1);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.file.stats()
    }

    /// Like [`Volume::explain`](crate::Volume::explain), for the waits in this file. Does not
    /// block.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// // The volume was opened without `VolumeOptions::explain`.
    /// assert!(file.explain().is_empty());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn explain(&self) -> Vec<Explanation> {
        self.file.explain()
    }
}

//! The position of a file handle, for the traits of [`std::io`].
//!
//! Handles that were cloned from one another share a position, as descriptors of dup(2) do. A read
//! or a write through the traits holds its lock, so each moves the position once, as in the kernel.
//! Operations at an offset neither hold nor move it.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};

use super::{File, FileCursor};
use crate::error::Result;
use crate::sync::{Arc, Mutex, Rank};

/// The position of a handle and its clones, in bytes from the start of the file.
#[derive(Clone, Debug)]
pub(super) struct Position(Arc<Mutex<u64>>);

impl Position {
    /// Returns the position at the start of a file.
    pub(super) fn start() -> Self {
        Self(Arc::new(Mutex::new(Rank::FilePosition, 0)))
    }
}

impl File {
    /// Returns another handle of the same file, with the same options and the same position, like
    /// [`Clone::clone`]. It never fails; the name is that of [`std::fs::File::try_clone`].
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use std::io::Write;
    ///
    /// let mut file = volume.create_file("/file")?;
    /// let mut other = file.try_clone()?;
    /// file.write_all(b"one ")?;
    /// other.write_all(b"two")?;
    /// assert_eq!(volume.read("/file")?, b"one two");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// None.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(self.clone())
    }

    /// Moves the shared position by `operation` on a cursor at it.
    fn at_position<T>(
        &self,
        operation: impl FnOnce(&mut FileCursor<&Self>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut position = self.position.0.lock();
        let mut cursor = FileCursor::at(self, *position);
        let result = operation(&mut cursor);
        *position = cursor.position();
        result
    }
}

/// Reads from the [position](File::try_clone) on, and moves it. Blocks until writes of the same
/// bytes have completed.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// use std::io::{Read, Seek, SeekFrom, Write};
/// use parext4::OpenOptions;
///
/// let file = volume.open_file("/file", &OpenOptions::read_write().create(true))?;
/// write!(&file, "to be or not")?;
/// (&file).seek(SeekFrom::Start(3))?;
/// let mut text = String::new();
/// (&file).read_to_string(&mut text)?;
/// assert_eq!(text, "be or not");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.at_position(|cursor| cursor.read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.at_position(|cursor| cursor.read_vectored(bufs))
    }
}

/// Writes at the position and moves it; in append mode, at the end of the file.
impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.at_position(|cursor| cursor.write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.at_position(|cursor| cursor.write_vectored(bufs))
    }

    /// Does nothing: [`File::sync_data`] makes data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Moves the position, which may be past the end of the file.
impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at_position(|cursor| cursor.seek(to))
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

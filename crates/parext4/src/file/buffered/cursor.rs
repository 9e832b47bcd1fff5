//! Reads and writes a file from a position on, for the traits of [`std::io`].

use std::borrow::Borrow;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};

use super::File;

/// A position in a [`File`], which reads and writes move: implements [`Read`], [`Write`] and
/// [`Seek`].
///
/// A [`File`] implements the same traits, with one position for all threads that share it. Each
/// cursor has a position of its own: several cursors of one file, in one thread or in many, are
/// independent. In append mode every write goes to the end of the file and moves the position
/// there. [`flush`](Write::flush) makes nothing durable; [`File::sync_data`] does.
///
/// `F` is the file, or a reference to it, such as `File`, `&File` or `Arc<File>`.
///
/// ```
/// # use std::sync::Arc;
/// # use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};
/// use std::io::{BufRead, BufReader, Write};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Arc::new(MemDevice::new(16 << 20));
/// # mkfs(&*device, &MkfsOptions::new())?;
/// # let volume = Volume::open_device(device, &VolumeOptions::new())?;
/// let file = volume.create_file("/poem")?;
/// let mut out = file.cursor();
/// writeln!(out, "first line")?;
/// writeln!(out, "second line")?;
///
/// let lines = BufReader::new(volume.open_file("/poem", &parext4::OpenOptions::read_only())?.into_cursor()).lines();
/// assert_eq!(lines.collect::<Result<Vec<_>, _>>()?, ["first line", "second line"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FileCursor<F = File> {
    file: F,
    position: u64,
}

impl File {
    /// Returns a cursor at the start of the file, for the traits of [`std::io`].
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use std::io::Write;
    ///
    /// let mut cursor = file.cursor();
    /// writeln!(cursor, "{}", 7)?;
    /// assert_eq!(cursor.position(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cursor(&self) -> FileCursor<&Self> {
        FileCursor::new(self)
    }

    /// Turns the handle into a cursor at the start of the file.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use std::io::{BufRead, BufReader};
    ///
    /// volume.write("/lines", "one\ntwo\n")?;
    /// let lines = BufReader::new(volume.open_file("/lines", &parext4::OpenOptions::read_only())?.into_cursor()).lines();
    /// assert_eq!(lines.count(), 2);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn into_cursor(self) -> FileCursor {
        FileCursor::new(self)
    }
}

impl<F: Borrow<File>> FileCursor<F> {
    /// Returns a cursor at the start of `file`.
    #[must_use]
    pub fn new(file: F) -> Self {
        Self { file, position: 0 }
    }

    /// Returns a cursor at `position`.
    pub(super) fn at(file: F, position: u64) -> Self {
        Self { file, position }
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &File {
        self.file.borrow()
    }

    /// Returns the position, in bytes from the start of the file.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    fn advance(&mut self, bytes: usize) -> usize {
        self.position += bytes as u64;
        bytes
    }
}

impl<F: Borrow<File>> Read for FileCursor<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file().read_at(buf, self.position)?;
        Ok(self.advance(count))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let count = self.file().read_vectored_at(bufs, self.position)?;
        Ok(self.advance(count))
    }
}

impl<F: Borrow<File>> Write for FileCursor<F> {
    /// Writes all of `buf`.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    /// Writes all of `bufs` in one step.
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if self.file().options.append {
            self.position = self.file().append_vectored(bufs)?;
        } else {
            self.file().write_all_vectored_at(bufs, self.position)?;
        }
        Ok(self.advance(len))
    }

    /// Does nothing: written data needs no flush to be seen, and [`File::sync_data`] makes it
    /// durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: Borrow<File>> Seek for FileCursor<F> {
    /// Sets the position, which may be past the end of the file.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, distance) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::End(distance) => (self.file().size(), distance),
            SeekFrom::Current(distance) => (self.position, distance),
        };
        self.position = from.checked_add_signed(distance).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a position before the start of the file, or too large",
            )
        })?;
        Ok(self.position)
    }
}

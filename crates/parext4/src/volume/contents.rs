//! Reads, writes and copies whole files by path, as the functions of [`std::fs`] do.

use std::path::Path;

use super::Volume;
use crate::error::{Error, Result};
use crate::file::{File, OpenOptions};
use crate::namespace::SetAttributes;

/// Number of bytes that are read or copied at a time.
const CHUNK: usize = 1 << 20;

impl Volume {
    /// Returns the contents of a file.
    ///
    /// An image can state any size, up to 16 TiB, for a file that has no data. Read a file of an
    /// untrusted image with [`open_file`](Self::open_file) and a limit, such as
    /// [`Read::take`](std::io::Read::take) of a cursor.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};
    /// # fn main() -> Result<(), parext4::Error> {
    /// # let device = Arc::new(MemDevice::new(16 << 20));
    /// # mkfs(&*device, &MkfsOptions::new())?;
    /// # let volume = Volume::open_device(device, &VolumeOptions::new())?;
    /// volume.write("/greeting", "hello")?;
    /// assert_eq!(volume.read("/greeting")?, b"hello");
    /// assert_eq!(volume.read_to_string("/greeting")?, "hello");
    /// assert!(volume.exists("/greeting")? && !volume.exists("/farewell")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`open_file`](Self::open_file) and [`File::read_at`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path, &OpenOptions::read_only())?;
        let mut bytes = Vec::new();
        loop {
            let read = bytes.len();
            bytes.resize(read + CHUNK, 0);
            let count = file.read_at(&mut bytes[read..], read as u64)?;
            bytes.truncate(read + count);
            if count < CHUNK {
                return Ok(bytes);
            }
        }
    }

    /// Returns the contents of a file that is UTF-8 text.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// assert_eq!(volume.read_to_string("/a")?, "text");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); [`Error::Invalid`] if the file is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?)
            .map_err(|_| Error::invalid(format_args!("{} is not UTF-8 text", path.display())))
    }

    /// Creates a file, or truncates the file that exists, and writes `contents`. The data is
    /// written back later; [`sync`](Self::sync) makes it durable.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "first")?;
    /// volume.write("/a", b"2nd")?;
    /// assert_eq!(volume.read("/a")?, b"2nd");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`open_file`](Self::open_file) and [`File::write_all_at`].
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        self.create_file(path)?.write_all_at(contents.as_ref(), 0)
    }

    /// Returns true if a path leads to an inode. Follows symbolic links.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// assert!(volume.exists("/lost+found")?);
    /// assert!(!volume.exists("/found")?);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`resolve`](Self::resolve), except [`Error::NotFound`].
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.resolve(path) {
            Err(Error::NotFound(_)) => Ok(false),
            found => found.map(|_| true),
        }
    }

    /// Copies the contents and the permission bits of a file, and returns the number of bytes.
    /// Creates the target, or replaces its contents. Copies holes as zeros.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// assert_eq!(volume.copy("/a", "/b")?, 4);
    /// assert_eq!(volume.read("/b")?, b"text");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`open_file`](Self::open_file), [`File::read_at`] and [`File::write_all_at`];
    /// [`Error::Invalid`] if both paths lead to one file.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open_file(from, &OpenOptions::read_only())?;
        let permissions = source.metadata().permissions;
        let options = OpenOptions::new().write(true).create(true).mode(permissions);
        let target = self.open_file(to, &options)?;
        if source.inode_ref().ino() == target.inode_ref().ino() {
            return Err(Error::invalid("a file to copy onto itself"));
        }
        target.set_len(0)?;
        let bytes = copy_contents(&source, &target)?;
        target.inode_ref().set_attributes(&SetAttributes::new().permissions(permissions))?;
        Ok(bytes)
    }
}

/// Copies the bytes of a file to another file. Returns their number.
fn copy_contents(source: &File, target: &File) -> Result<u64> {
    let mut buf = vec![0; CHUNK];
    let mut done = 0;
    loop {
        let count = source.read_at(&mut buf, done)?;
        target.write_all_at(&buf[..count], done)?;
        done += count as u64;
        if count < CHUNK {
            return Ok(done);
        }
    }
}

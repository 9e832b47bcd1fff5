//! Opens and creates files by path.

use std::path::Path;

use super::Volume;
use crate::error::{Error, Result};
use crate::file::{DirectFile, File, OpenOptions};
use crate::inode_ref::InodeRef;
use crate::namespace::NewInode;

/// Limit of symbolic links that lead from a path to a file that is created.
const MAX_FOLLOWED: u32 = 40;

/// The calls follow symbolic links, also a link at the end of the path unless
/// [`create_new`](OpenOptions::create_new) is set.
impl Volume {
    /// Opens a file for reads and writes of any offset and length, through the page cache.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use parext4::{MemDevice, MkfsOptions, VolumeOptions, mkfs};
    /// use parext4::{OpenOptions, Volume};
    ///
    /// # fn main() -> Result<(), parext4::Error> {
    /// # let device = Arc::new(MemDevice::new(16 << 20));
    /// # mkfs(&*device, &MkfsOptions::new())?;
    /// # let volume = Volume::open_device(device, &VolumeOptions::new())?;
    /// let file = volume.open_file("/counters", &OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&7_u32.to_le_bytes(), 4)?;
    /// assert_eq!(file.size(), 8);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] unless the file exists or is created; [`Error::Exists`] for
    /// [`create_new`](OpenOptions::create_new); [`Error::IsDirectory`], or [`Error::Invalid`] for
    /// another kind of inode; [`Error::ReadOnly`] if the options write and the volume is read-only;
    /// [`Error::Invalid`] if the options contradict each other; the errors of
    /// [`resolve`](Self::resolve) and of [`InodeRef::create`].
    pub fn open_file(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        options.check()?;
        let (node, created) = self.find_or_create(path.as_ref(), options)?;
        let file = File::new(node, options)?;
        if options.truncate && !created {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Opens a file for direct I/O: bypasses the page cache, in multiples of the device's sectors.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::{AlignedBuf, OpenOptions};
    ///
    /// let file = volume.open_direct("/data", &OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&AlignedBuf::from_slice(&[7; 4096]), 0)?;
    /// assert_eq!(file.size(), 4096);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`open_file`](Self::open_file); [`Error::Invalid`] for `append`, `atomicity`
    /// and `sync`, which only buffered files have.
    pub fn open_direct(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<DirectFile> {
        options.check_direct()?;
        let (node, created) = self.find_or_create(path.as_ref(), options)?;
        let file = DirectFile::with_access(node, options.access())?;
        if options.truncate && !created {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Opens a file for writing, as [`std::fs::File::create`] does: creates it, or truncates it to
    /// zero bytes if it exists.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let file = volume.create_file("/a")?;
    /// file.write_all_at(b"text", 0)?;
    /// assert_eq!(volume.read("/a")?, b"text");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`open_file`](Self::open_file).
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_file(path, &OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Returns the inode of the file to open, and true if this call has created it.
    fn find_or_create(&self, path: &Path, options: &OpenOptions) -> Result<(InodeRef, bool)> {
        if options.access().write {
            self.engine.check_not_read_only()?;
        }
        if options.create_new {
            return Ok((self.create_node(path, options.mode)?, true));
        }
        let found = match self.resolve(path) {
            Err(Error::NotFound(_)) if options.create => return self.create_followed(path, options.mode),
            found => found?,
        };
        if options.access().write {
            found.make_room_for_fields();
        }
        Ok((found, false))
    }

    /// Creates a file, at the target of the symbolic links at the end of the path if there are any.
    /// Returns the inode, and false if another thread has created the file first.
    fn create_followed(&self, path: &Path, mode: u16) -> Result<(InodeRef, bool)> {
        let mut path = path.to_owned();
        for _ in 0..MAX_FOLLOWED {
            match self.create_node(&path, mode) {
                Err(Error::Exists(_)) => {}
                created => return Ok((created?, true)),
            }
            match self.resolve(&path) {
                Err(Error::NotFound(_)) => {}
                found => return Ok((found?, false)),
            }
            match self.read_link(&path) {
                // Another thread has removed the file or the link.
                Err(Error::NotFound(_) | Error::Invalid(_)) => {}
                target => path = path.parent().unwrap_or(Path::new("/")).join(target?),
            }
        }
        Err(Error::Loop(path.display().to_string()))
    }

    /// Creates a regular file.
    fn create_node(&self, path: &Path, mode: u16) -> Result<InodeRef> {
        let place = self.place(path)?;
        if place.slash || place.name.is_empty() {
            return Err(Error::IsDirectory(path.display().to_string()));
        }
        place.dir.create(&place.name, &NewInode::new().permissions(mode))
    }
}

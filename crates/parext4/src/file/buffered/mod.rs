//! Buffered I/O: reads and writes of any alignment, by any number of threads at once, on the
//! volume's page cache.
//!
//! While it copies, a read holds its bytes shared and a write holds its bytes exclusively. If the
//! pages are cached, it acquires no other lock, opens no journal handle and does not read the map.
//! [Write-back](crate::writeback) allocates the blocks of new data; the write only reserves space
//! for them (delayed allocation).

mod ahead_requests;
mod cursor;
mod fill;
mod page_fault;
mod position;
mod read;
mod read_ahead;
mod replacement;
mod shared;
mod space;
mod sync;
mod untorn;
mod write;

pub use cursor::FileCursor;
pub use page_fault::PageFault;
use position::Position;
use rangelock::ByteRange;

use self::read_ahead::ReadAhead;
use super::{Access, Atomicity, DirectFile, OpenOptions, SyncMode};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::inode::Cached;
use crate::inode_ref::InodeRef;
use crate::namespace::Metadata;
use crate::page_cache::{FilePages, PageIndex};
use crate::sync::atomic::AtomicU32;
use crate::sync::{Rank, hold};

/// An open file, for reads and writes of any offset and length through the volume's page cache.
///
/// All methods take `&self`: share one `File` between any number of threads. They wait for each
/// other only where their bytes overlap. Reads and writes take an offset, like the methods of
/// [`std::os::unix::fs::FileExt`]. [`Read`](std::io::Read), [`Write`](std::io::Write) and
/// [`Seek`](std::io::Seek) move one position that all users of the handle share, as in
/// [`std::fs::File`]; a [`cursor`](Self::cursor) adds another one.
///
/// A read never sees half of a write, unless the file was opened with [`Atomicity::Page`]. `File`s
/// and [`DirectFile`]s of one file see each other's writes. Data is written back some seconds after
/// the write, and durable after [`sync_data`](Self::sync_data) or [`sync_all`](Self::sync_all).
///
/// ```
/// use std::sync::Arc;
/// use parext4::{MemDevice, MkfsOptions, OpenOptions, Volume, VolumeOptions, mkfs};
///
/// # fn main() -> Result<(), parext4::Error> {
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::new())?;
/// let volume = Volume::open_device(device, &VolumeOptions::new())?;
/// let file = volume.open_file("/notes", &OpenOptions::read_write().create(true))?;
/// file.write_all_at(b"to be", 0)?;
/// file.append(b" or not to be")?;
/// file.sync_data()?;
/// let mut text = [0; 18];
/// file.read_exact_at(&mut text, 0)?;
/// assert_eq!(&text, b"to be or not to be");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct File {
    file: DirectFile,
    options: OpenOptions,
    /// The count of failed write-backs up to which this handle has reported them.
    heard: AtomicU32,
    read_ahead: ReadAhead,
    position: Position,
}

impl DirectFile {
    /// Returns a handle of the same file for I/O through the page cache, with the same access as
    /// this one. Its writes do not append, are not durable when they return, and are atomic to
    /// reads.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// let buffered = file.buffered()?;
    /// buffered.append(b"at any alignment")?;
    /// assert_eq!(file.size(), 16, "both are the same file");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the volume is closed.
    pub fn buffered(&self) -> Result<File> {
        let Access { read, write } = self.access;
        self.buffered_as(OpenOptions::new().read(read).write(write))
    }

    /// Returns a handle of the same file for I/O through the page cache, with the modes of
    /// `options`.
    fn buffered_as(&self, options: OpenOptions) -> Result<File> {
        let _in_flight = self.engine().in_flight().enter()?;
        if self.inode().cached().is_none() {
            // Excludes operations that began when the file had no pages and therefore do not check
            // for pages.
            let _order = hold(Rank::Range);
            let _alone = self.inode().ranges.exclusive(ByteRange::ALL);
            self.engine().idle_cache().start(self.engine().pages());
            self.inode().cached_or_init(|| Cached::new(FilePages::new(self.engine().pages())));
        }
        let heard = AtomicU32::new(self.inode().cached().map_or(0, |cached| cached.failures.now()));
        let (read_ahead, position) = (ReadAhead::new(), Position::start());
        Ok(File { file: self.clone(), options, heard, read_ahead, position })
    }
}

impl File {
    /// Opens the regular file of an inode. `options` say what the handle may do and what its reads
    /// and writes promise; the file exists, so what they say about creating and truncating it has
    /// no effect.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::{File, NewInode, OpenOptions};
    ///
    /// let node = volume.root()?.create(b"file", &NewInode::new())?;
    /// let file = File::new(node, &OpenOptions::read_write())?;
    /// file.append(b"text")?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IsDirectory`], or [`Error::Invalid`] if the inode is neither a file nor a
    /// directory; [`Error::Invalid`] if the options contradict each other.
    pub fn new(node: InodeRef, options: &OpenOptions) -> Result<Self> {
        options.check()?;
        DirectFile::with_access(node, options.access())?.buffered_as(*options)
    }

    /// Returns this handle, to act on behalf of a caller with `credentials`. Later write-back of
    /// its data succeeds whatever they are, because the write has reserved the space.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Credentials) -> Self {
        self.file.node.engine.set_credentials(credentials);
        self
    }

    /// Returns the handle for direct I/O on the same file, which may do what this one may.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 8192)?;
    /// file.direct().write_all_at(&parext4::AlignedBuf::zeroed(4096), 0)?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn direct(&self) -> &DirectFile {
        &self.file
    }

    /// Returns the file's inode.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use parext4::XattrMode;
    ///
    /// file.inode_ref().set_xattr(b"user.kind", b"log", XattrMode::Any)?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn inode_ref(&self) -> &InodeRef {
        self.file.inode_ref()
    }

    /// Returns the file's attributes.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(b"text")?;
    /// assert_eq!(file.metadata().size, 4);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        self.file.metadata()
    }

    /// Returns the size in bytes.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 10)?;
    /// assert_eq!(file.size(), 14);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads exactly as many bytes as `buf` has.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(b"text")?;
    /// let mut bytes = [0; 4];
    /// file.read_exact_at(&mut bytes, 0)?;
    /// assert_eq!(&bytes, b"text");
    /// assert!(file.read_exact_at(&mut bytes, 1).is_err());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnexpectedEof`] if the file ends before the buffer is full; the errors of
    /// [`read_at`](Self::read_at).
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.read_at(buf, offset)? == buf.len() { Ok(()) } else { Err(Error::UnexpectedEof) }
    }

    /// Sets the size in bytes, as [`DirectFile::set_len`].
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(b"text")?;
    /// file.set_len(2)?;
    /// assert_eq!(volume.read("/file")?, b"te");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`DirectFile::set_len`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.file.set_len(size)
    }

    /// Returns the file's part of the page cache.
    fn cached(&self) -> Result<&Cached> {
        self.file.cached_pages()
    }
}

impl DirectFile {
    /// Returns the file's part of the page cache. Fails if the file was not opened for buffered
    /// I/O.
    fn cached_pages(&self) -> Result<&Cached> {
        self.inode().cached().ok_or_else(|| Error::invalid("the file was not opened for buffered I/O"))
    }

    /// Records that a page has become dirty.
    fn note_dirty(&self, cached: &Cached, index: PageIndex) {
        cached.pages.note_dirty(index);
        self.engine().note_dirty(self.inode(), cached);
    }
}

/// Returns another handle with the same options and the same position. It reports later failures of
/// write-back itself, and has a read-ahead of its own.
impl Clone for File {
    fn clone(&self) -> Self {
        let heard = AtomicU32::new(self.file.inode().cached().map_or(0, |cached| cached.failures.now()));
        let (read_ahead, position) = (ReadAhead::new(), self.position.clone());
        Self { file: self.file.clone(), options: self.options, heard, read_ahead, position }
    }
}

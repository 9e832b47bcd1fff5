//! Files: reading and writing their bytes from any number of threads.
//!
//! Every operation passes [admission](crate::admission), which decides the byte range that it
//! needs. The operation holds that range from before it reads the map until after its last change
//! (I2). Operations on disjoint ranges share no other lock, except briefly while the map, the
//! allocator or the journal change.

mod acquire;
mod buffered;
mod direct;
mod inline;
mod options;
mod query;
mod queue;
mod space;
mod sync;

pub use buffered::{File, FileCursor, PageFault};
pub(crate) use options::Access;
pub use options::{Atomicity, OpenOptions, SyncMode};
pub use query::FileExtent;
pub use queue::{Completion, IoFlags, IoQueue, IoRequest, IoWaker};
pub use space::FileSize;

use std::ops::Range;

use parext4_format::inode::{FileType, InodeFlags};

use crate::credentials::Credentials;
use crate::engine::{Engine, Entered};
use crate::error::{Error, Result};
use crate::inode::{FIXED, Inode};
use crate::inode_ref::InodeRef;
use crate::namespace::Metadata;
use crate::sync::Arc;

/// An open regular file. All methods take `&self`: share one `DirectFile` between any number of
/// threads.
///
/// I/O is direct, at the granularity of the device's sectors ([`DirectFile::sector_size`]): offsets
/// are multiples of it, and so are lengths, unless the request reaches the end of the file.
///
/// A read never sees half of a write. Once a write has returned, every later read returns its data,
/// until another write overwrites it. (A [`Policy`](crate::Policy) other than the default promises
/// less.) Data is durable after [`sync_data`](Self::sync_data) or [`sync_all`](Self::sync_all).
///
/// ```
/// # let volume = testkit::volume::scratch();
/// use parext4::{AlignedBuf, OpenOptions};
///
/// let file = volume.open_direct("/data", &OpenOptions::read_write().create(true))?;
/// file.write_all_at(&AlignedBuf::from_slice(&[7; 8192]), 0)?;
/// let mut block = AlignedBuf::zeroed(4096);
/// file.read_exact_at(&mut block, 4096)?;
/// assert_eq!(block[0], 7);
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DirectFile {
    node: InodeRef,
    access: Access,
    /// Whether writes update the file's times.
    dates: bool,
    /// The inode's flags that refuse writes.
    refusing: InodeFlags,
}

impl DirectFile {
    /// Opens the regular file of an inode for reading and writing.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::{DirectFile, NewInode};
    ///
    /// let node = volume.root()?.create(b"file", &NewInode::new())?;
    /// let file = DirectFile::new(node)?;
    /// assert_eq!(file.size(), 0);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::IsDirectory`], or [`Error::Invalid`] if the inode is neither a file nor a
    /// directory; [`Error::NoKey`] if it is encrypted; [`Error::Corrupt`] if fs-verity protects it
    /// and its descriptor is not valid.
    pub fn new(node: InodeRef) -> Result<Self> {
        Self::with_access(node, Access::READ_WRITE)
    }

    /// Opens the regular file of an inode for what `access` allows. Returns the errors of
    /// [`new`](Self::new).
    pub(crate) fn with_access(node: InodeRef, access: Access) -> Result<Self> {
        match node.file_type() {
            FileType::Regular => {
                node.inode.check_key()?;
                node.merkle_tree()?;
                Ok(Self { node, access, dates: true, refusing: FIXED })
            }
            FileType::Directory => Err(Error::IsDirectory(format!("inode {}", node.ino()))),
            other => Err(Error::invalid(format_args!("inode {} is a {other:?}, not a file", node.ino()))),
        }
    }

    /// Returns the file of an inode, for a background thread of the volume.
    fn for_own_thread(node: InodeRef) -> Self {
        Self { node, access: Access::READ_WRITE, dates: false, refusing: FIXED }
    }

    /// Implements
    /// [`ServerDirectFile::keeping_times`](crate::server::ServerDirectFile::keeping_times).
    #[must_use]
    pub(crate) fn keeping_times(&self) -> Self {
        Self { dates: false, ..self.clone() }
    }

    /// Implements
    /// [`ServerDirectFile::checked_when_opened`](crate::server::ServerDirectFile::checked_when_opened).
    #[must_use]
    pub(crate) fn checked_when_opened(&self) -> Self {
        Self { refusing: InodeFlags::IMMUTABLE, ..self.clone() }
    }

    /// Returns this handle, to act on behalf of a caller with `credentials`.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { node: self.node.with_credentials(credentials), ..self }
    }

    /// Returns the credentials that the handle acts with.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        self.node.engine.credentials()
    }

    /// Implements
    /// [`ServerDirectFile::may_wait_for_space`](crate::server::ServerDirectFile::may_wait_for_space).
    #[must_use]
    pub(crate) fn may_wait_for_space(&self, len: usize) -> bool {
        let engine = &self.node.engine;
        let blocks = len as u64 / u64::from(engine.layout().block_size.bytes()) + 1;
        engine.allocator().is_short_of(blocks, self.credentials())
    }

    /// Returns the file's inode.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// assert_eq!(volume.metadata("/file")?.ino, file.inode_ref().ino());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn inode_ref(&self) -> &InodeRef {
        &self.node
    }

    /// Returns the file's attributes.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(4096), 8192)?;
    /// assert_eq!(file.metadata().sectors, 8, "the hole takes no space");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        self.node.metadata()
    }

    /// Reads exactly as many bytes as `buf` has.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(4096), 8192)?;
    /// let mut buf = parext4::AlignedBuf::zeroed(8192);
    /// file.read_exact_at(&mut buf, 4096)?;
    /// assert!(file.read_exact_at(&mut buf, 8192).is_err(), "the file ends before");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnexpectedEof`] if the file ends before the buffer is full; the errors of
    /// [`read_at`](Self::read_at).
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.read_at(buf, offset)? == buf.len() { Ok(()) } else { Err(Error::UnexpectedEof) }
    }

    /// Returns the size in bytes.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(&parext4::AlignedBuf::zeroed(4096))?;
    /// assert_eq!(file.size(), 4096);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inode().size()
    }

    /// Returns the unit of offsets and lengths, in bytes.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// let sector = file.sector_size() as usize;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(2 * sector), 0)?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn sector_size(&self) -> u32 {
        self.engine().device().sector_size()
    }

    /// Returns true if the two handles are interchangeable.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.inode(), other.inode())
            && self.credentials() == other.credentials()
            && (self.access, self.dates, self.refusing) == (other.access, other.dates, other.refusing)
    }

    fn inode(&self) -> &Arc<Inode> {
        &self.node.inode
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.node.engine
    }

    /// Begins an operation that reads the file; closing the volume waits until the returned guard
    /// is dropped.
    fn begin_read(&self) -> Result<Entered<'_>> {
        self.access.check_read()?;
        self.engine().in_flight().enter()
    }

    /// Begins an operation that changes the file; closing the volume waits until the returned guard
    /// is dropped. Fails if the handle may not change the file, or if the file has one of the
    /// `forbidden` flags or is protected by fs-verity.
    fn begin_change(&self, forbidden: InodeFlags) -> Result<Entered<'_>> {
        self.access.check_write()?;
        self.engine().check_writable()?;
        self.inode().check_flags(forbidden | InodeFlags::VERITY)?;
        self.engine().in_flight().enter()
    }

    /// Checks a range to change, which must not be empty; otherwise like [`InodeRef::end_of`].
    fn check_range(&self, range: &Range<u64>) -> Result<()> {
        check_not_empty(range)?;
        self.node.end_of(range.start, range.end - range.start).map(drop)
    }
}

/// Returns [`Error::Invalid`] for a range without bytes.
fn check_not_empty(range: &Range<u64>) -> Result<()> {
    if range.is_empty() {
        return Err(Error::invalid(format_args!("the range {}..{} has no bytes", range.start, range.end)));
    }
    Ok(())
}

//! Files: reading and writing their bytes from any number of threads.
//!
//! Every operation passes [admission](crate::admission), which says the byte range it needs and why, holds that range from
//! before it looks at the map until after the last change (I2), and shares no other lock with operations
//! on other ranges but for the moments in which the map, the allocator or the journal change.

mod buffered;
mod direct;
mod options;
mod query;
mod queue;
mod space;
mod sync;

pub use buffered::{File, FileCursor};
pub(crate) use options::Access;
pub use options::{Atomicity, OpenOptions, SyncMode};
use parext4_format::inode::{FileType, InodeFlags};
pub use query::FileExtent;
pub use queue::{Completion, IoFlags, IoQueue, IoRequest, IoWaker};

use crate::engine::{Engine, Entered};
use crate::error::{Error, Result};
use crate::inode::{FIXED, Inode};
use crate::namespace::Metadata;
use crate::node::Node;
use crate::sync::Arc;

/// An open regular file. All methods take `&self`: share one `DirectFile` between any number of threads.
///
/// I/O is direct, at the granularity of the device's sectors ([`DirectFile::sector_size`]): offsets are multiples
/// of it, and so are lengths, unless the request reaches the end of the file.
///
/// A read never sees half of a write, and what a write that has returned has written is what every later
/// read returns, until overwritten. (A [`Policy`](crate::Policy) other than the default promises less.) Data is
/// durable after [`sync_data`](Self::sync_data) or [`sync_all`](Self::sync_all).
#[derive(Clone, Debug)]
pub struct DirectFile {
    node: Node,
    access: Access,
    /// Whether writes date the file.
    dates: bool,
    /// The inode's flags that refuse writes.
    refusing: InodeFlags,
}

impl DirectFile {
    /// Opens the regular file of an inode for reading and writing.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], or [`Error::Invalid`] if the inode is neither a file nor a directory.
    pub fn new(node: Node) -> Result<Self> {
        Self::with_access(node, Access::READ_WRITE)
    }

    /// Opens the regular file of an inode for what `access` allows. Errors as [`new`](Self::new).
    pub(crate) fn with_access(node: Node, access: Access) -> Result<Self> {
        match node.file_type() {
            FileType::Regular => Ok(Self { node, access, dates: true, refusing: FIXED }),
            FileType::Directory => Err(Error::IsDirectory(format!("inode {}", node.ino()))),
            other => Err(Error::invalid(format_args!("inode {} is a {other:?}, not a file", node.ino()))),
        }
    }

    /// Returns the file of an inode, for a thread of the volume's own.
    fn for_own_thread(node: Node) -> Self {
        Self { node, access: Access::READ_WRITE, dates: false, refusing: FIXED }
    }

    /// The same file for writes that leave its times alone: those of a page cache above this one, whose owner dates the
    /// file when data comes into that cache. What changes the file in another way than by a write dates it all the same.
    #[must_use]
    pub fn keeping_times(&self) -> Self {
        Self { dates: false, ..self.clone() }
    }

    /// Returns the same file for a caller that checks the append-only flag when it opens files, as open(2) does: its
    /// writes go on after the flag is set. An immutable file refuses them.
    #[must_use]
    pub fn checked_when_opened(&self) -> Self {
        Self { refusing: InodeFlags::IMMUTABLE, ..self.clone() }
    }

    /// Returns the file's inode.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the file's attributes.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        self.node.metadata()
    }

    /// Reads exactly as many bytes as `buf` has.
    ///
    /// # Errors
    /// [`Error::UnexpectedEof`] if the file ends before; the errors of [`read_at`](Self::read_at).
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.read_at(buf, offset)? == buf.len() { Ok(()) } else { Err(Error::UnexpectedEof) }
    }

    /// The same as [`write_at`](Self::write_at), which writes all data too, by the name that
    /// [`std::os::unix::fs::FileExt`] has for it.
    ///
    /// # Errors
    /// The errors of [`write_at`](Self::write_at).
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_at(data, offset)
    }

    /// Size in bytes. It covers what has been written, and zeros where nothing has.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inode().size()
    }

    /// The unit of offsets and lengths, in bytes.
    #[must_use]
    pub fn sector_size(&self) -> u32 {
        self.engine().device.sector_size()
    }

    /// Whether it makes no difference which of the two is used.
    fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq::<Inode>(&**self.inode(), &**other.inode())
            && (self.access, self.dates, self.refusing) == (other.access, other.dates, other.refusing)
    }

    fn inode(&self) -> &Arc<Inode> {
        &self.node.inode
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.node.engine
    }

    /// Begins an operation that reads the file; closing the volume waits until the returned guard is dropped.
    fn begin_read(&self) -> Result<Entered<'_>> {
        self.access.check_read()?;
        self.engine().in_flight.enter()
    }

    /// Begins an operation that changes the file; closing the volume waits until what this returns is
    /// dropped. An error unless the file may be changed, and has none of the `forbidden` flags.
    fn begin_change(&self, forbidden: InodeFlags) -> Result<Entered<'_>> {
        self.access.check_write()?;
        self.engine().check_writable()?;
        self.inode().check_flags(forbidden)?;
        self.engine().in_flight.enter()
    }

    /// The end of a range to change, which is not empty; else as [`Node::end_of`].
    fn end_of_range(&self, offset: u64, len: u64) -> Result<u64> {
        if len == 0 {
            return Err(Error::invalid("a range of length 0"));
        }
        self.node.end_of(offset, len)
    }
}

//! Allocating blocks ahead of writing (fallocate).

use std::ops::Range;

use parext4_format::inode::InodeFlags;
use rangelock::ByteRange;

use crate::admission::{HeldRange, Transfer};
use crate::allocator::Growth;
use crate::error::{Error, Result};
use crate::file::{DirectFile, FileSize};
use crate::operation::Operation;

/// Blocks requested at once: the most that one extent can hold.
const CHUNK: u32 = parext4_format::extent::MAX_UNWRITTEN;

impl DirectFile {
    /// Allocates the blocks of `range`, in bytes, which read as zeros until written. `size` says
    /// whether a file that ends before the range grows to cover it. Blocks until operations on the
    /// same bytes have completed.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use parext4::FileSize;
    ///
    /// file.allocate(0..1 << 20, FileSize::Keep)?;
    /// assert_eq!(file.size(), 0, "FileSize::Keep");
    /// assert!(file.fiemap(0..u64::MAX)?[0].unwritten);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a range without bytes;
    /// [`Error::FileTooLarge`](crate::Error::FileTooLarge);
    /// [`Error::NoSpace`](crate::Error::NoSpace); blocks that were allocated before the failure
    /// stay allocated, and the size does not change.
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the file has no extents (ext2, ext3),
    /// because only they record that blocks are not written.
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) if the file is immutable.
    pub fn allocate(&self, range: Range<u64>, size: FileSize) -> Result<()> {
        let _in_flight = self.begin_change(InodeFlags::IMMUTABLE)?;
        self.check_extents()?;
        self.check_range(&range)?;
        self.ensure_blocks()?;
        let Range { start: offset, end } = range;
        let operation = Operation::Allocate { offset, end, keep_size: size == FileSize::Keep };
        let _held = self.acquire_allocated(operation, range, size)?;
        self.finish_allocation(end, size)
    }

    /// Checks that the file has extents.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if it has none, as from the kernel.
    pub(in crate::file) fn check_extents(&self) -> Result<()> {
        if self.inode().has_extents() {
            return Ok(());
        }
        Err(Error::Unsupported(format!("inode {}: it has no extents", self.inode().ino())))
    }

    /// Acquires the range of an operation that allocates all blocks of `bytes`, and allocates them.
    /// With [`FileSize::Extend`] the operation may extend the file to cover them.
    pub(in crate::file) fn acquire_allocated(
        &self,
        operation: Operation,
        bytes: Range<u64>,
        size: FileSize,
    ) -> Result<HeldRange<'_>> {
        let grows_to = match size {
            FileSize::Extend => bytes.end,
            FileSize::Keep => 0,
        };
        let held = self.acquire(&mut Transfer::extending(operation, grows_to))?;
        if held.admission.zero_tail {
            self.zero_tail(held.hold())?;
        }
        if bytes.end > self.size() {
            self.engine().note_requested(self.inode());
        }
        self.allocate_blocks(bytes.start, bytes.end)?;
        Ok(held)
    }

    /// Maps every hole in the blocks of `[offset, end)`.
    fn allocate_blocks(&self, offset: u64, end: u64) -> Result<()> {
        let blocks = self.node.blocks_of(ByteRange::new(offset, end));
        self.engine().with_space(|| {
            let mut rest = blocks;
            while !rest.is_empty() {
                self.node.fill_holes(rest.take(CHUNK), 0, Growth::Exact)?;
                rest = rest.skip(CHUNK);
            }
            Ok(())
        })
    }

    /// Raises the size to `end` with [`FileSize::Extend`]. Marks the file as modified in either
    /// case, as the kernel does.
    pub(in crate::file) fn finish_allocation(&self, end: u64, size: FileSize) -> Result<()> {
        let inode = self.inode();
        if size == FileSize::Extend {
            self.engine().allow_size(end)?;
        }
        self.engine().transact(1, |handle| {
            inode.join(handle);
            if size == FileSize::Extend && end > inode.size() {
                inode.raise_size(end);
            }
            inode.touch_modified();
            Ok(())
        })
    }
}

//! [`FileDevice`]: blocking calls on an image file or a block device.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fdatasync, flock};
use rustix::io::Errno;

use super::open::Opened;
use super::{direct, open, transfer};
use crate::alignment::Alignment;
use crate::check;
use crate::device::Device;
use crate::lock_handover::LockReturn;
use crate::options::{DeviceOptions, Direct};
use crate::queue::Queue;
use crate::sharing::Sharing;
use crate::uring::{UringQueue, VolumeFile};

/// A volume in an image file or on a block device.
///
/// Its size is fixed while it is open. Under direct I/O the kernel uses buffers whose address and
/// length it accepts without a copy, and this type copies the bytes of other buffers through
/// aligned memory. Its native queue is an io_uring.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    base: u64,
    size: u64,
    sector: u32,
    read_only: bool,
    is_block_device: bool,
    is_locked: bool,
    lock_return: Option<LockReturn>,
    direct: Option<Alignment>,
}

impl FileDevice {
    /// Opens and locks the file at `path`. Blocks for up to half a second while another program
    /// uses a block device.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another opener's lock forbids it; `InvalidInput` if the
    /// path or the options do not describe a volume; `Unsupported` if direct I/O is demanded and
    /// not possible. Messages name the path.
    pub fn open(path: impl AsRef<Path>, options: &DeviceOptions) -> io::Result<Self> {
        let path = path.as_ref();
        let opened = open::open(path, options)?;
        let direct = direct::set_up(&opened, path, options.direct)?;
        let sector = direct.map_or(BUFFERED_SECTOR, |alignment| alignment.offset);
        Ok(Self::new(opened, path, options.read_only, sector, direct))
    }

    /// Makes a device of an open file that may grow: any offset may be written, and a read past the
    /// end of the file fails with `UnexpectedEof`. Without `direct` the sector size is one byte.
    ///
    /// # Errors
    /// `Unsupported` if `direct` is true and the file has no direct I/O.
    pub(crate) fn growing(file: File, direct: bool) -> io::Result<Self> {
        let path = Path::new("open file");
        // The largest offset of a file, rounded down to sectors of any size.
        let size = i64::MAX as u64 & !0xf_ffff;
        let opened =
            Opened { file, is_block_device: false, is_locked: false, lock_return: None, base: 0, size };
        let mode = if direct { Direct::Always } else { Direct::Never };
        let direct = direct::set_up(&opened, path, mode)?;
        let sector = direct.map_or(1, |alignment| alignment.offset);
        Ok(Self::new(opened, path, false, sector, direct))
    }

    fn new(opened: Opened, path: &Path, read_only: bool, sector: u32, direct: Option<Alignment>) -> Self {
        Self {
            file: opened.file,
            path: path.to_owned(),
            base: opened.base,
            size: opened.size - opened.size % u64::from(sector),
            sector,
            read_only,
            is_block_device: opened.is_block_device,
            is_locked: opened.is_locked,
            lock_return: opened.lock_return,
            direct,
        }
    }

    /// Returns the path by which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Returns the offset of the volume in the file in bytes, for I/O on [`as_fd`](AsFd::as_fd).
    pub fn base_offset(&self) -> u64 {
        self.base
    }

    /// Returns the alignment in bytes that a buffer's address needs to be used without a copy.
    pub fn memory_alignment(&self) -> u32 {
        self.direct.map_or(1, |alignment| alignment.memory)
    }

    /// Makes the host file system reserve space for all of the volume. Contents stay. Does nothing
    /// on a block device.
    ///
    /// # Errors
    /// The errors of fallocate(2), such as `ENOSPC`.
    pub fn allocate(&self) -> io::Result<()> {
        if self.is_block_device || self.size == 0 {
            return Ok(());
        }
        Ok(rustix::io::retry_on_intr(|| {
            fallocate(&self.file, FallocateFlags::empty(), self.base, self.size)
        })?)
    }

    /// Returns whether the kernel accepts these buffers.
    fn accepts<B: std::ops::Deref<Target = [u8]>>(&self, bufs: &[B]) -> bool {
        self.direct.is_none_or(|alignment| bufs.iter().all(|buf| alignment.fits(buf)))
    }
}

/// Sector size of a file that is accessed through the page cache, bytes.
const BUFFERED_SECTOR: u32 = 512;

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    // No sum below overflows: the checks bound offset + len by the volume's size, and `open` bounds
    // the volume by the file's size.

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = check::read(self, offset, bufs)?;
        if self.accepts(bufs) {
            transfer::read_all(&self.file, self.base + offset, bufs)
        } else {
            direct::bounced_read(&self.file, self.base + offset, len, bufs)
        }
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = check::write(self, offset, bufs)?;
        if self.accepts(bufs) {
            transfer::write_all(&self.file, self.base + offset, bufs)
        } else {
            direct::bounced_write(&self.file, self.base + offset, len, bufs)
        }
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        // fdatasync(2) also flushes the metadata that is needed to read the data, such as blocks
        // allocated in a sparse image. Other metadata does not matter, because the size is fixed.
        Ok(rustix::io::retry_on_intr(|| fdatasync(&self.file))?)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check::change_range(self, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        // On a block device the kernel discards the range so that it reads as zeros, or fails with
        // EOPNOTSUPP.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::io::retry_on_intr(|| fallocate(&self.file, punch, self.base + offset, len)) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sharing(&self) -> Sharing {
        if self.is_block_device { Sharing::Unknown } else { Sharing::Local }
    }

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        let volume = VolumeFile { fd: self.file.as_fd(), base: self.base, alignment: self.direct };
        Ok(Some(Box::new(UringQueue::new(self.clone(), volume, depth)?)))
    }
}

impl Drop for FileDevice {
    /// Unlocks the file. Closing it would unlock it too, but only after the kernel has released the
    /// rings that used it, some time after they were closed.
    fn drop(&mut self) {
        // Another holder of the same open file may have locked the file, and then that lock stays.
        if self.is_locked {
            if let Some(lock_return) = &self.lock_return {
                lock_return.pass_back(&self.file);
            }
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl AsFd for FileDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

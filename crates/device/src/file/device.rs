//! A volume in an image file or on a block device.

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
use crate::options::{DeviceOptions, Direct};
use crate::queue::Queue;
use crate::uring::{UringQueue, VolumeFile};

/// A volume in an image file or on a block device.
///
/// Its size is fixed while it is open. Under direct I/O, buffers whose address and length the kernel takes go
/// straight to the device; others are copied through aligned memory.
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
    direct: Option<Alignment>,
}

impl FileDevice {
    /// Opens, and locks, the file at `path`.
    ///
    /// Fails with [`io::ErrorKind::ResourceBusy`] if another opener's lock forbids it, and with `InvalidInput`
    /// if the path or the options do not name a volume; messages name the path.
    pub fn open(path: impl AsRef<Path>, options: &DeviceOptions) -> io::Result<Self> {
        let path = path.as_ref();
        let opened = open::open(path, options)?;
        let direct = direct::set_up(&opened, path, options.direct)?;
        let sector = direct.map_or(BUFFERED_SECTOR, |alignment| alignment.offset);
        Ok(Self::new(opened, path, options.read_only, sector, direct))
    }

    /// An open file that may grow: any offset may be written, and a read past the end fails with
    /// `UnexpectedEof` as it does past the end of a device. `direct` switches it to direct I/O, or else fails
    /// with `Unsupported`; without, the smallest unit is one byte.
    pub(crate) fn growing(file: File, direct: bool) -> io::Result<Self> {
        let path = Path::new("open file");
        // The largest offset, in whole sectors of any size.
        let size = i64::MAX as u64 & !0xf_ffff;
        let opened = Opened { file, is_block_device: false, is_locked: false, base: 0, size };
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
            direct,
        }
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Byte offset of the volume in the file: for I/O on [`as_fd`](AsFd::as_fd).
    pub fn base_offset(&self) -> u64 {
        self.base
    }

    /// What a buffer's address must be a multiple of to go straight to the device, bytes.
    pub fn memory_alignment(&self) -> u32 {
        self.direct.map_or(1, |alignment| alignment.memory)
    }

    /// Makes the file system under the image reserve space for all of it; contents stay. Nothing to do on a
    /// block device.
    pub fn allocate(&self) -> io::Result<()> {
        if self.is_block_device || self.size == 0 {
            return Ok(());
        }
        Ok(rustix::io::retry_on_intr(|| {
            fallocate(&self.file, FallocateFlags::empty(), self.base, self.size)
        })?)
    }

    /// Whether the kernel takes these buffers as they are.
    fn takes<B: std::ops::Deref<Target = [u8]>>(&self, bufs: &[B]) -> bool {
        self.direct.is_none_or(|alignment| bufs.iter().all(|buf| alignment.fits(buf)))
    }
}

/// The unit of access where the page cache hides the medium's.
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

    // The checks bound offset + len by the volume's size, and `open` bounds the volume by the file's: no sum
    // below overflows.

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = check::read(self, offset, bufs)?;
        if self.takes(bufs) {
            transfer::read_all(&self.file, self.base + offset, bufs)
        } else {
            direct::bounced_read(&self.file, self.base + offset, len, bufs)
        }
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = check::write(self, offset, bufs)?;
        if self.takes(bufs) {
            transfer::write_all(&self.file, self.base + offset, bufs)
        } else {
            direct::bounced_write(&self.file, self.base + offset, len, bufs)
        }
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        // fdatasync(2) also flushes what is needed to read the data back: allocations under a sparse image. The
        // rest of the metadata does not matter, as the size is fixed.
        Ok(rustix::io::retry_on_intr(|| fdatasync(&self.file))?)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check::change_range(self, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        // On a block device the kernel turns this into a discard that also reads back as zeros, or EOPNOTSUPP.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::io::retry_on_intr(|| fallocate(&self.file, punch, self.base + offset, len)) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        let volume = VolumeFile { fd: self.file.as_fd(), base: self.base, alignment: self.direct };
        Ok(Some(Box::new(UringQueue::new(self.clone(), volume, depth)?)))
    }
}

impl Drop for FileDevice {
    /// Unlocks the file. Closing it does so too, but only when the kernel has let go of the rings that used it, which it does
    /// some time after they were closed.
    fn drop(&mut self) {
        // A lock that somebody else took on the same open file is his.
        if self.is_locked {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl AsFd for FileDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

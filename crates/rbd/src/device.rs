//! [`RbdDevice`]: an image as a device.

use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::sync::Arc;

use parext4_device::{Device, DeviceOptions, LockOwner, Queue, Sharing, check};

use crate::image_io::ImageIo;
use crate::image_url::ImageUrl;
use crate::lock;
use crate::open::{self, Opened, SECTOR};
use crate::queue::RbdQueue;

/// Longest discard that is sent as one request, bytes.
const MAX_DISCARD: u64 = 1 << 30;

/// An RBD image, or a part of it.
///
/// Its size is fixed while it is open. librbd's cache is off. The native queue keeps requests in
/// flight without threads. Dropping the device and its queues flushes the image and releases its
/// lock.
#[derive(Debug)]
pub struct RbdDevice {
    io: Arc<ImageIo>,
    size: u64,
    object_size: Option<NonZeroU64>,
    sharing: Sharing,
    has_fenced: bool,
}

impl RbdDevice {
    /// Opens an image, or creates it if [`DeviceOptions::create`] has a size. A writable open
    /// acquires the image's exclusive lock.
    ///
    /// Blocks until the cluster answers. Gives up after 30 seconds if no monitor answers, or after
    /// `client_mount_timeout` of the configuration.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another client holds the lock; `Unsupported` if librbd is
    /// not installed, or the image's configuration turns its cache on; `NotFound` if there is no
    /// such image; `AlreadyExists` if it is to be created and exists with fewer bytes. Messages
    /// name the image.
    pub fn open(url: &ImageUrl, options: &DeviceOptions) -> io::Result<Self> {
        let Opened { io, size, object_size, sharing, has_fenced } = open::open(url, options)?;
        Ok(Self { io: Arc::new(io), size, object_size, sharing, has_fenced })
    }
}

impl Device for RbdDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        SECTOR as u32
    }

    fn read_only(&self) -> bool {
        self.io.read_only
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = check::read(self, offset, bufs)?;
        if len == 0 { Ok(()) } else { self.io.read(offset, bufs, len) }
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = check::write(self, offset, bufs)?;
        if len == 0 { Ok(()) } else { self.io.write(offset, bufs, len) }
    }

    fn flush(&self) -> io::Result<()> {
        if self.io.read_only { Ok(()) } else { self.io.flush() }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check::change_range(self, offset, len)?;
        let end = offset + len;
        let mut start = offset;
        while start < end {
            let next = end.min(start + MAX_DISCARD);
            self.io.discard(start, next - start)?;
            start = next;
        }
        Ok(())
    }

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn has_fenced(&self) -> bool {
        self.has_fenced
    }

    fn lock_owner(&self) -> io::Result<Option<LockOwner>> {
        lock::owner(&self.io.image)
    }

    fn check_fence(&self) -> io::Result<()> {
        lock::check_fence(&self.io.image)
    }

    fn object_size(&self) -> Option<NonZeroU64> {
        self.object_size
    }

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        let io = Arc::clone(&self.io);
        Ok(Some(Box::new(RbdQueue::new(self, io, depth))))
    }
}

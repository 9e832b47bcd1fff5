//! [`ImageIo`]: the requests on an image, as blocking calls and as batches of a queue.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4_device::{Batch, Op};

use crate::completions::{Completions, short_read};
use crate::fence::Fence;
use crate::ffi::Image;
use crate::reconnect_timeout;
use crate::size_watch::SizeWatch;

/// An open image, the place of the volume in it, and the fence of this client. All offsets are from
/// the start of the volume; the caller has checked them against the size of the volume.
#[derive(Debug)]
pub(crate) struct ImageIo {
    // The watch uses the image, so it is dropped first.
    pub(crate) size_watch: SizeWatch,
    pub(crate) image: Arc<Image>,
    pub(crate) fence: Arc<Fence>,
    /// Start of the volume in the image, bytes.
    pub(crate) base: u64,
    pub(crate) read_only: bool,
}

impl ImageIo {
    /// Fails if the client is fenced, or the image now ends before `end`.
    fn admit(&self, end: u64) -> io::Result<()> {
        self.fence.check()?;
        self.size_watch.check(self.base + end)
    }

    /// Fills all of `bufs`, which have `len` bytes.
    pub(crate) fn read(&self, offset: u64, bufs: &mut [IoSliceMut<'_>], len: u64) -> io::Result<()> {
        self.admit(offset + len)?;
        match self.image.read(self.base + offset, bufs) {
            value if value < 0 => Err(self.fence.error(value, false)),
            value if (value.unsigned_abs() as u64) < len => Err(short_read(value)),
            _ => Ok(()),
        }
    }

    /// Writes all of `bufs`, which have `len` bytes.
    pub(crate) fn write(&self, offset: u64, bufs: &[IoSlice<'_>], len: u64) -> io::Result<()> {
        self.admit(offset + len)?;
        self.changed(self.image.write(self.base + offset, bufs))
    }

    /// Releases the storage of a range.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.admit(offset + len)?;
        self.changed(self.image.discard(self.base + offset, len))
    }

    /// Makes completed writes durable.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.fence.check()?;
        self.changed(self.image.flush())
    }

    /// Converts librbd's value for a change to a result.
    fn changed(&self, value: isize) -> io::Result<()> {
        if value < 0 { Err(self.fence.error(value, true)) } else { Ok(()) }
    }

    /// Starts the requests of a batch, which `completions` receives when they have ended.
    pub(crate) fn start(&self, mut batch: Batch, completions: &Arc<Completions>) {
        let bytes = batch.bytes() as u64;
        let end = match &batch.requests_mut()[0].op {
            Op::Read { offset, .. } | Op::Write { offset, .. } => offset + bytes,
            _ => 0,
        };
        match self.admit(end) {
            Ok(()) => self.image.start(batch, self.base, completions),
            Err(error) => completions.complete(batch, &Err(error)),
        }
    }
}

impl Drop for ImageIo {
    /// Makes completed writes durable before the image is closed, which releases its lock.
    ///
    /// If the cluster did not answer a request, the image is not closed, and its lock stays until
    /// the process ends: the cluster may perform the request later. A client that breaks the lock
    /// makes the cluster refuse that request first.
    fn drop(&mut self) {
        if !self.read_only
            && let Err(error) = self.flush()
        {
            log::warn!("flushing the image before it is closed: {error}");
        }
        if self.fence.is_silent() {
            reconnect_timeout::hurry(self.image.cluster());
            std::mem::forget(Arc::clone(&self.image));
        }
    }
}

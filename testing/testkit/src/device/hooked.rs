//! A device that forwards to another, with a hook for each kind of request.

use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;

use parext4::Device;
use parext4::device::forward_device;

/// What a test does to the requests of a device. Each hook sends its request to `inner`, or fails
/// it. By default, it only forwards.
pub trait Hooks: Debug + Send + Sync {
    /// Replaces [`Device::sector_size`].
    fn sector_size(&self, inner: &dyn Device) -> u32 {
        inner.sector_size()
    }

    /// Replaces [`Device::object_size`].
    fn object_size(&self, inner: &dyn Device) -> Option<NonZeroU64> {
        inner.object_size()
    }

    /// Replaces [`Device::read_at`].
    ///
    /// # Errors
    /// As [`Device::read_at`].
    fn read_at(&self, inner: &dyn Device, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        inner.read_at(offset, bufs)
    }

    /// Replaces [`Device::write_at`].
    ///
    /// # Errors
    /// As [`Device::write_at`].
    fn write_at(&self, inner: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        inner.write_at(offset, bufs)
    }

    /// Replaces [`Device::flush`].
    ///
    /// # Errors
    /// As [`Device::flush`].
    fn flush(&self, inner: &dyn Device) -> io::Result<()> {
        inner.flush()
    }

    /// Replaces [`Device::discard`].
    ///
    /// # Errors
    /// As [`Device::discard`].
    fn discard(&self, inner: &dyn Device, offset: u64, len: u64) -> io::Result<()> {
        inner.discard(offset, len)
    }
}

/// A device whose requests go through the hooks of a test.
#[derive(Debug)]
pub struct HookedDevice<D, H> {
    inner: D,
    hooks: H,
}

impl<D: Device, H: Hooks> HookedDevice<D, H> {
    /// Returns a device that sends the requests for `inner` through `hooks`.
    pub const fn new(inner: D, hooks: H) -> Self {
        Self { inner, hooks }
    }

    /// Returns the device that serves the requests.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the hooks.
    pub const fn hooks(&self) -> &H {
        &self.hooks
    }
}

impl<D: Device, H: Hooks> Device for HookedDevice<D, H> {
    forward_device!(this => this.inner; size, sharing, has_fenced, lock_owner, check_fence, guard_writes, counters, read_only);

    fn object_size(&self) -> Option<NonZeroU64> {
        self.hooks.object_size(&self.inner)
    }

    fn sector_size(&self) -> u32 {
        self.hooks.sector_size(&self.inner)
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.hooks.read_at(&self.inner, offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.hooks.write_at(&self.inner, offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.hooks.flush(&self.inner)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.hooks.discard(&self.inner, offset, len)
    }
}

//! A device whose writes, discards and flushes need the lease.
//!
//! A flush needs it, too: a sync must not report writes as durable that the next owner of the
//! volume did not find.

use std::io::{self, IoSlice};

use parext4_device::{Device, Queue, forward_device};

use super::lease::Lease;
use super::leased_queue::LeasedQueue;
use crate::sync::Arc;

/// The device of a protected volume.
#[derive(Debug)]
pub(super) struct LeasedDevice {
    inner: Arc<dyn Device>,
    lease: Arc<Lease>,
}

impl LeasedDevice {
    pub(super) fn new(inner: Arc<dyn Device>, lease: &Arc<Lease>) -> Self {
        Self { inner, lease: Arc::clone(lease) }
    }
}

impl Device for LeasedDevice {
    forward_device!(this => this.inner; size, sector_size, read_only, sharing, has_fenced, lock_owner, check_fence, object_size,
        guard_writes, read_at);

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let _permit = self.lease.wait()?;
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        let _permit = self.lease.wait()?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let _permit = self.lease.wait()?;
        self.inner.discard(offset, len)
    }

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        let inner = Arc::clone(&self.inner).native_queue(depth)?;
        Ok(inner.map(|inner| Box::new(LeasedQueue::new(inner, &self.lease, depth)) as Box<dyn Queue>))
    }
}

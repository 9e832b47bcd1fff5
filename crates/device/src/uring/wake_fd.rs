//! The event that wakes a thread that blocks in the kernel on a ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// A flag that a wake sets, and an eventfd that the ring polls.
///
/// The flag alone says whether a wake is pending. The eventfd only ends the wait in the kernel: it
/// may be readable while the flag is clear.
#[derive(Debug)]
pub(super) struct WakeFd {
    pending: AtomicBool,
    fd: OwnedFd,
}

impl WakeFd {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { pending: AtomicBool::new(false), fd })
    }

    /// Clears the flag and returns whether it was set.
    pub(super) fn take(&self) -> bool {
        // The load leaves the cache line shared in the usual case.
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::AcqRel)
    }

    /// Makes the eventfd unreadable. `take` still returns a wake that came before.
    pub(super) fn drain(&self) {
        // The read fails only if the eventfd is not readable.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Wake for WakeFd {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.pending.store(true, Ordering::Release);
        // Also if a wake is pending: the owner may have drained its event, and wait on the ring's
        // descriptor. The write fails only if the counter would overflow, and then the eventfd is
        // readable.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

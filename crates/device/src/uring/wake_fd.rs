//! Waking a thread that waits in the kernel for a ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd that the ring polls, and whether a wake has not been answered.
///
/// The flag is the truth; the eventfd only ends the wait, so it may be readable without the flag.
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

    /// Whether there was a wake since the last time it was asked.
    pub(super) fn take(&self) -> bool {
        // Looking first leaves the cache line shared.
        self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::AcqRel)
    }

    /// Makes the eventfd unreadable; a wake from before is then seen by `take`.
    pub(super) fn drain(&self) {
        // It fails only if there is nothing to read.
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
        if !self.pending.swap(true, Ordering::AcqRel) {
            // It fails only if the counter is about to overflow, so it is readable.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

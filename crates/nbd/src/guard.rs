//! The guard of a volume's owner, which the client asks before writes leave this machine.
//!
//! | when | what is asked | what follows if the answer is no |
//! |---|---|---|
//! | before each call that passes writes to a socket; with TLS, to both sockets | whether writes may be sent | the connections end, and new ones are made |
//! | on new connections, before anything is sent again | whether a read still finds this machine to be the owner | the session ends |

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use parext4_device::{ReadNow, WriteGuard};
use parking_lot::RwLock;

/// The guard, if the device has one. A later guard replaces an earlier one.
#[derive(Debug, Default)]
pub(crate) struct Guard(RwLock<Option<Guarded>>);

#[derive(Clone, Debug)]
struct Guarded {
    guard: Arc<dyn WriteGuard>,
    /// Start of the volume in the export, bytes.
    base: u64,
}

impl Guard {
    pub(crate) fn set(&self, guard: Arc<dyn WriteGuard>, base: u64) {
        *self.0.write() = Some(Guarded { guard, base });
    }

    /// Returns true if writes may be sent now.
    pub(crate) fn may_write(&self) -> bool {
        self.0.read().as_ref().is_none_or(|guarded| guarded.guard.may_write())
    }

    /// Asks the guard whether this machine still owns the volume. `read` reads from the export.
    ///
    /// # Errors
    /// As [`WriteGuard::may_resend`].
    pub(crate) fn may_resend(&self, read: &mut ReadNow<'_>) -> io::Result<()> {
        let Some(Guarded { guard, base }) = self.0.read().clone() else { return Ok(()) };
        guard.may_resend(&mut |offset, bytes| read(base + offset, bytes))
    }
}

/// The changes of one connection that have no answer: writes, trims and flushes.
///
/// The thread that [encrypts](crate::tls) cannot tell a change from a read. It asks the guard while
/// any change is without an answer, because an answered change has already left this machine.
#[derive(Debug)]
pub(crate) struct Changes {
    guard: Arc<Guard>,
    unanswered: AtomicUsize,
}

impl Changes {
    pub(crate) fn new(guard: Arc<Guard>) -> Self {
        Self { guard, unanswered: AtomicUsize::new(0) }
    }

    /// Notes a change before it is sent.
    pub(crate) fn begin(&self) {
        self.unanswered.fetch_add(1, SeqCst);
    }

    /// Notes the answer to a change.
    pub(crate) fn end(&self) {
        self.unanswered.fetch_sub(1, SeqCst);
    }

    /// Returns true if changes may be sent now.
    pub(crate) fn may_write(&self) -> bool {
        self.guard.may_write()
    }

    /// Returns true if the bytes that the connection has accepted may be sent now.
    pub(crate) fn may_pass(&self) -> bool {
        self.unanswered.load(SeqCst) == 0 || self.guard.may_write()
    }
}

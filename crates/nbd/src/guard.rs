//! The guard of a volume's owner, which the client asks before writes leave this machine.
//!
//! | when | what is asked | what follows if the answer is no |
//! |---|---|---|
//! | before each call that passes writes to a socket | whether writes may be sent | the connections end, and new ones are made |
//! | on new connections, before anything is sent again | whether a read still finds this machine to be the owner | the session ends |

use std::io;
use std::sync::Arc;

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

    /// Asks whether this machine still owns the volume. `read` reads from the export.
    ///
    /// # Errors
    /// As [`WriteGuard::may_resend`].
    pub(crate) fn may_resend(&self, read: &mut ReadNow<'_>) -> io::Result<()> {
        let Some(Guarded { guard, base }) = self.0.read().clone() else { return Ok(()) };
        guard.may_resend(&mut |offset, bytes| read(base + offset, bytes))
    }
}

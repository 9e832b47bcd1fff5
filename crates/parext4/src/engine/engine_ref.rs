//! The users of a volume. The last user closes it, even while background threads are running.

use std::ops::Deref;

use super::Engine;
use crate::credentials::Credentials;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Number of users of a volume.
#[derive(Debug)]
pub(crate) struct UseCount(AtomicU32);

impl UseCount {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// A use of a volume, on behalf of a caller.
#[derive(Debug)]
pub(crate) struct EngineRef {
    engine: Arc<Engine>,
    /// False for background threads, which do not keep the volume open.
    counts: bool,
    /// True if its owner drops it without an action of a user. A background thread does.
    departs: bool,
    credentials: Credentials,
}

impl EngineRef {
    /// Releases the use. Returns true if it was the last one that counts.
    pub(crate) fn release(&self) -> bool {
        // AcqRel: the closing thread sees everything done through the other uses.
        self.counts && self.engine.users.0.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns a use that counts, on behalf of root.
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        // Relaxed suffices, as for `Arc`.
        engine.users.0.fetch_add(1, Ordering::Relaxed);
        Self { engine: Arc::clone(engine), counts: true, departs: false, credentials: Credentials::root() }
    }

    /// Returns a use for a background thread, which closing the volume joins. It acts as root.
    pub(crate) fn own_thread(engine: &Arc<Engine>) -> Self {
        Self { engine: Arc::clone(engine), counts: false, departs: true, credentials: Credentials::root() }
    }

    /// Returns true if its owner drops it without an action of a user.
    pub(crate) fn departs(&self) -> bool {
        self.departs
    }

    /// Marks this reference as one that its owner drops without an action of a user. Its clones are
    /// not marked.
    pub(crate) fn set_departs(&mut self) {
        self.departs = true;
    }

    /// Returns the credentials of the caller.
    pub(crate) fn credentials(&self) -> Credentials {
        self.credentials
    }

    /// Sets the credentials of the caller.
    pub(crate) fn set_credentials(&mut self, credentials: Credentials) {
        self.credentials = credentials;
    }
}

impl Clone for EngineRef {
    fn clone(&self) -> Self {
        let mut clone = if self.counts { Self::new(&self.engine) } else { Self::own_thread(&self.engine) };
        clone.set_credentials(self.credentials);
        clone
    }
}

impl Deref for EngineRef {
    type Target = Arc<Engine>;
    fn deref(&self) -> &Arc<Engine> {
        &self.engine
    }
}

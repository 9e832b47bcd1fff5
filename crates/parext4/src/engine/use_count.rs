//! Who uses a volume: the last user to go closes it, though threads of the volume's own may still be at work in it.

use std::ops::Deref;

use super::Engine;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Counts the users of a volume.
#[derive(Debug)]
pub(crate) struct UseCount(AtomicU32);

impl UseCount {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// A use of a volume.
#[derive(Debug)]
pub(crate) struct Use {
    engine: Arc<Engine>,
    /// Whether it counts: the volume's own threads do not keep it from being closed.
    counts: bool,
}

impl Use {
    /// Drops the use. Returns true if it was the last that counts.
    pub(crate) fn release(&self) -> bool {
        // AcqRel: who closes sees all that was done through the other uses.
        self.counts && self.engine.users.0.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// A user of the volume.
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        // Relaxed, as for `Arc`.
        engine.users.0.fetch_add(1, Ordering::Relaxed);
        Self { engine: Arc::clone(engine), counts: true }
    }

    /// One of the volume's own threads, which closing waits for.
    pub(crate) fn own_thread(engine: &Arc<Engine>) -> Self {
        Self { engine: Arc::clone(engine), counts: false }
    }
}

impl Clone for Use {
    fn clone(&self) -> Self {
        if self.counts { Self::new(&self.engine) } else { Self::own_thread(&self.engine) }
    }
}

impl Deref for Use {
    type Target = Arc<Engine>;
    fn deref(&self) -> &Arc<Engine> {
        &self.engine
    }
}

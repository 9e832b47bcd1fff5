//! Who uses a volume: the last user to go closes it, though threads of the volume's own may still be at work in it.

use std::ops::Deref;

use super::Inner;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Counts the users of a volume.
#[derive(Debug)]
pub(super) struct Users(AtomicU32);

impl Users {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// A use of a volume.
#[derive(Debug)]
pub(crate) struct Use {
    volume: Arc<Inner>,
    /// Whether it counts: the volume's own threads do not keep it from being closed.
    counts: bool,
}

impl Use {
    /// A user of the volume.
    pub(crate) fn new(volume: &Arc<Inner>) -> Self {
        // Relaxed, as for `Arc`.
        volume.users.0.fetch_add(1, Ordering::Relaxed);
        Self { volume: Arc::clone(volume), counts: true }
    }

    /// One of the volume's own threads, which closing waits for.
    pub(crate) fn own_thread(volume: &Arc<Inner>) -> Self {
        Self { volume: Arc::clone(volume), counts: false }
    }
}

impl Clone for Use {
    fn clone(&self) -> Self {
        if self.counts { Self::new(&self.volume) } else { Self::own_thread(&self.volume) }
    }
}

impl Deref for Use {
    type Target = Arc<Inner>;
    fn deref(&self) -> &Arc<Inner> {
        &self.volume
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        // AcqRel: who closes sees all that was done through the other uses.
        if self.counts && self.volume.users.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Nobody is left to hear of an error; the journal recovers the volume.
            if let Err(error) = self.volume.close() {
                tracing::warn!("closing the volume: {error}");
            }
        }
    }
}

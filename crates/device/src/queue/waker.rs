//! The handle that ends a blocking `harvest` from another thread.

use std::sync::Arc;
use std::task::{Wake, Waker};

/// Wakes a queue: a [`harvest`](super::Queue::harvest) that blocks, or else the next one that
/// would, returns.
///
/// Wakes are not counted: one return may answer several.
#[derive(Clone, Debug)]
pub struct QueueWaker(Waker);

impl QueueWaker {
    /// Makes a waker that calls `wake`, for implementations of [`Queue`](super::Queue).
    ///
    /// `wake` must not block on the queue's owner, and must store the wake if no `harvest` blocks.
    pub fn new<W: Wake + Send + Sync + 'static>(wake: Arc<W>) -> Self {
        Self(Waker::from(wake))
    }

    /// Wakes the queue. Memory that this thread wrote before is visible to the owner after that
    /// `harvest`.
    pub fn wake(&self) {
        self.0.wake_by_ref();
    }
}

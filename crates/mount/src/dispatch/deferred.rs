//! Finishes requests in other threads than the one that has read them.

use std::sync::Arc;

use fuser::FileHandle;

use crate::in_flight::{InFlightRequest, Stage};
use crate::kernel_cache::{Invalidation, KernelPages};
use crate::server::Server;
use crate::threads::{SharedBuffers, WorkerPool};

/// The data with which any thread can finish a request.
#[derive(Debug)]
pub(super) struct Deferred {
    pub server: Arc<Server>,
    pub workers: Arc<WorkerPool>,
    pub buffers: Arc<SharedBuffers>,
    pub invalidation: Invalidation,
}

impl Deferred {
    /// Makes the kernel drop its attributes and pages of an open file after an operation of which
    /// only a part was done, because the kernel keeps its attributes and pages from before the
    /// operation. The caller calls this before the reply.
    pub fn drop_changed(&self, handle: FileHandle) {
        if let Ok(open) = self.server.open_file(handle) {
            self.server.invalidate_attributes(open.pages.ino);
            self.invalidation.drop_failed(&open.pages);
        }
    }

    /// Makes the kernel write back and drop its pages of several inodes, one inode after the other,
    /// and then calls `then`, which must not block. Does not block.
    pub fn drop_each(
        self: &Arc<Self>,
        mut inodes: Vec<Arc<KernelPages>>,
        then: impl FnOnce() + Send + 'static,
    ) {
        let Some(pages) = inodes.pop() else { return then() };
        let deferred = Arc::clone(self);
        self.invalidation.drop_all(pages, move || deferred.drop_each(inodes, then));
    }

    /// Runs a job in a worker thread that finishes a request.
    pub fn run_in_worker(
        self: &Arc<Self>,
        in_flight: InFlightRequest,
        job: impl FnOnce(&Arc<Self>, InFlightRequest) + Send + 'static,
    ) {
        let deferred = Arc::clone(self);
        in_flight.enter(Stage::QueuedForWorker);
        self.workers.spawn(move || {
            in_flight.enter(Stage::Executing);
            job(&deferred, in_flight);
        });
    }
}

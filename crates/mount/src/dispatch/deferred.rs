//! Finishes requests in other threads than the one that has read them.

use std::sync::Arc;

use crate::in_flight::{InFlightRequest, Stage};
use crate::kernel_cache::Invalidation;
use crate::server::Server;
use crate::threads::{SharedBuffers, WorkerPool};

/// What any thread needs to finish a request.
#[derive(Debug)]
pub(super) struct Deferred {
    pub server: Arc<Server>,
    pub workers: Arc<WorkerPool>,
    pub buffers: Arc<SharedBuffers>,
    pub invalidation: Invalidation,
}

impl Deferred {
    /// Finishes a request in a worker thread.
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

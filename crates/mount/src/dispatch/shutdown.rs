//! The shutdown of a volume: afterwards programs can read nothing from the kernel's pages either, as on the kernel's ext4.

use super::Dispatcher;
use super::reply::Reply;
use crate::in_flight::{RequestInfo, Stage};
use crate::protocol::Outcome;
use crate::server::Server;
use crate::threads::Latency;

impl Dispatcher {
    /// Executes the shutdown, has the kernel drop its pages of all open files, and replies. The volume refuses dirty ones.
    pub(super) fn execute_shutdown(
        &self,
        info: RequestInfo,
        reply: impl Reply<Vec<u8>> + Send + 'static,
        shut_down: impl FnOnce(&Server) -> Outcome<Vec<u8>> + Send + 'static,
    ) {
        self.run_deferred(info, Latency::Long, move |deferred, in_flight| {
            let outcome = shut_down(&deferred.server);
            if outcome.is_err() {
                return reply.send(outcome);
            }
            in_flight.enter(Stage::WaitingForKernel);
            deferred.drop_each(deferred.server.open_files.pages(), move || {
                reply.send(outcome);
                drop(in_flight);
            });
        });
    }
}

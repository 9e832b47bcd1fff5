//! The shutdown of a volume. Afterwards programs can read nothing from the kernel's pages either,
//! as on the kernel's ext4.

use std::sync::Arc;

use super::Dispatcher;
use super::reply::Reply;
use crate::in_flight::{RequestInfo, Stage};
use crate::protocol::Outcome;
use crate::server::Server;

impl Dispatcher {
    /// Executes a shutdown. Makes the kernel write back its dirty pages of all open files, because
    /// a program may have called syncfs(2) before, then shuts the volume down, makes the kernel
    /// drop its pages, and replies. The volume refuses data that programs have stored meanwhile.
    pub(super) fn execute_shutdown(
        &self,
        info: RequestInfo,
        reply: impl Reply<Vec<u8>> + Send + 'static,
        shut_down: impl FnOnce(&Server) -> Outcome<Vec<u8>> + Send + 'static,
    ) {
        let deferred = Arc::clone(&self.deferred);
        let in_flight = self.server.in_flight.add(info);
        in_flight.enter(Stage::WaitingForKernel);
        let _scope = self.request_threads.begin_request().hand_off();
        self.deferred.drop_each(self.server.open_files.pages(), move || {
            deferred.run_in_worker(in_flight, move |deferred, in_flight| {
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
        });
    }
}

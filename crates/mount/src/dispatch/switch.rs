//! The request by which `remount,rw` makes a volume writable that was mounted read-only.

use std::sync::Arc;

use super::Dispatcher;
use super::reply::{Reply, XattrReply};
use crate::in_flight::RequestInfo;
use crate::protocol::{Caller, Failure};
use crate::switch::MAX_VALUE;
use crate::threads::Latency;

impl Dispatcher {
    /// Makes the volume writable, and replies with an empty value, or with the reason why it
    /// cannot. If the caller only asks for the length of the value (`size` is 0), changes nothing.
    pub(super) fn execute_switch(&self, info: RequestInfo, size: u32, caller: Caller, reply: XattrReply) {
        let queues = Arc::clone(&self.queue_threads);
        self.run_deferred(info, Latency::Long, move |deferred, in_flight| {
            if size == 0 {
                return reply.send(Err(Failure::INVALID));
            }
            let mut why =
                deferred.server.become_writable(caller, &queues).err().unwrap_or_default().into_bytes();
            why.truncate(MAX_VALUE);
            reply.send(Ok(why));
            drop(in_flight);
        });
    }
}

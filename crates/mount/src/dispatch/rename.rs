//! Renames.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fuser::{INodeNo, RenameFlags, ReplyEmpty};

use super::Dispatcher;
use super::deferred::Deferred;
use super::reply::Reply;
use crate::in_flight::{InFlightRequest, RequestInfo, Stage};
use crate::kernel_cache::KernelPages;
use crate::protocol::{Caller, Failure, Outcome};
use crate::threads::Latency;

/// The arguments of a rename request.
#[derive(Debug)]
pub(super) struct Rename {
    /// The old directory and name, and the new ones.
    pub names: [(INodeNo, Vec<u8>); 2],
    pub flags: RenameFlags,
    pub caller: Caller,
}

impl Dispatcher {
    /// Executes a rename and replies. Makes the kernel write back its pages of a file before that
    /// file replaces another one. The rename fails if data of the file was lost by a failed
    /// write-back.
    pub(super) fn execute_rename(&self, rename: Rename, reply: ReplyEmpty) {
        let info = RequestInfo::new("rename", rename.names[0].0);
        self.run_deferred(info, Latency::Short, move |deferred, in_flight| {
            deferred.start_rename(rename, reply, in_flight);
        });
    }
}

impl Deferred {
    fn start_rename(self: &Arc<Self>, rename: Rename, reply: ReplyEmpty, in_flight: InFlightRequest) {
        let [old, new] = &rename.names;
        let dirty = match self.server.dirty_before_rename(old, new, rename.flags) {
            Ok(dirty) => dirty,
            Err(failure) => return reply.send(self.server.handle_corruption(Err(failure))),
        };
        let dirty: Vec<_> = dirty.into_iter().flatten().collect();
        if dirty.is_empty() {
            return self.finish_rename(&rename, &dirty, reply);
        }
        let deferred = Arc::clone(self);
        in_flight.enter(Stage::WaitingForKernel);
        self.drop_each(dirty.clone(), move || {
            deferred.run_in_worker(in_flight, move |deferred, _in_flight| {
                deferred.finish_rename(&rename, &dirty, reply);
            });
        });
    }

    fn finish_rename(&self, rename: &Rename, written_back: &[Arc<KernelPages>], reply: ReplyEmpty) {
        let outcome = match written_back.iter().find_map(|pages| pages.lost()) {
            Some(errno) => Err(Failure::new(errno)),
            None => self.rename(rename),
        };
        reply.send(self.server.handle_corruption(outcome));
    }

    fn rename(&self, rename: &Rename) -> Outcome<()> {
        let server = &self.server;
        let [(old_parent, old_name), (new_parent, new_name)] = &rename.names;
        server.rename((*old_parent, old_name), (*new_parent, new_name), rename.flags, rename.caller)?;
        for (dir, name) in server.names_to_forget(&rename.names) {
            self.invalidation.forget_name(*dir, OsStr::from_bytes(name).to_owned());
        }
        Ok(())
    }
}

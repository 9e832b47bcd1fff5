//! Syncs of a queue. They run in a thread of their own, because a commit blocks on the device and the queue's thread
//! must not.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::super::DirectFile;
use super::IoQueue;
use super::mailbox::{Delivery, Mailbox, OpId};
use super::pending::Kind;
use crate::error::{Error, Result};
use crate::sync::Arc;

/// One file to sync, for an operation.
struct Job {
    id: OpId,
    file: DirectFile,
    all: bool,
}

/// The thread that performs syncs. The first sync of a queue starts it.
#[derive(Debug)]
pub(super) struct Syncer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    fn start(mailbox: Arc<Mailbox>) -> Result<Self> {
        let (jobs, work) = channel::<Job>();
        let run = move || {
            for Job { id, file, all } in work {
                let result = if all { file.sync_all() } else { file.sync_data() };
                drop(file);
                mailbox.deliver(id, Delivery::Synced(result));
            }
        };
        let thread = std::thread::Builder::new().name("parext4-sync".into()).spawn(run);
        let thread = thread.map_err(|e| Error::device("starting a thread for syncs", e))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for syncs panicked");
        }
    }
}

impl IoQueue {
    pub(super) fn begin_sync(&mut self, key: usize) -> Result<()> {
        let op = &self.ops[key];
        let job =
            Job { id: op.id(key), file: self.files.get(op.file).clone(), all: op.kind == Kind::SyncAll };
        let syncer = match &self.syncer {
            Some(syncer) => syncer,
            None => self.syncer.insert(Syncer::start(Arc::clone(&self.mailbox))?),
        };
        let sent = syncer.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent { Ok(()) } else { Err(Error::Stopped("the thread for syncs has ended".into())) }
    }
}

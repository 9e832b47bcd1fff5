//! Calls of a queue that block: syncs, writes to contents in the inode, and reads that are
//! verified. They run in a thread of their own, because the queue's thread must not block.

use std::io::IoSlice;

use parext4_device::AlignedBuf;
use parext4_format::inode::InodeFlags;

use super::super::DirectFile;
use super::super::inline::InlineWrite;
use super::IoQueue;
use super::mailbox::{Delivery, Mailbox, OpId};
use crate::error::{Error, Result};
use crate::sync::Arc;
use crate::sync::mpsc::{Sender, channel};
use crate::threads::{self, JoinHandle};

/// A call on one file, for an operation.
#[derive(Debug)]
pub(super) struct Job {
    pub id: OpId,
    pub file: DirectFile,
    pub call: Call,
}

#[derive(Debug)]
pub(super) enum Call {
    SyncData,
    SyncAll,
    /// Writes the first `len` bytes of `buf` to contents in the inode, or moves these to blocks.
    WriteInline {
        buf: AlignedBuf,
        len: usize,
        place: InlineWrite,
        /// The flags with which the file refuses the write.
        forbidden: InodeFlags,
    },
    /// Reads `len` bytes of a file that fs-verity protects.
    ReadVerified {
        buf: AlignedBuf,
        len: usize,
        offset: u64,
    },
}

impl Job {
    fn run(self) -> (OpId, Delivery) {
        let Self { id, file, call } = self;
        let delivery = match call {
            Call::SyncData => Delivery::Synced(file.sync_data()),
            Call::SyncAll => Delivery::Synced(file.sync_all()),
            Call::WriteInline { buf, len, place, forbidden } => {
                let entered = file.begin_change(forbidden);
                let written = entered.and_then(|_| file.write_inline(&[IoSlice::new(&buf[..len])], place));
                Delivery::Inline(buf, written)
            }
            Call::ReadVerified { mut buf, len, offset } => {
                let read = file.read_at(&mut buf[..len], offset);
                Delivery::Verified(buf, read)
            }
        };
        (id, delivery)
    }
}

/// The thread. The first blocking call of a queue starts it. It makes the calls in the order in
/// which they were sent.
#[derive(Debug)]
pub(super) struct BlockingThread {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl BlockingThread {
    fn start(mailbox: Arc<Mailbox>) -> Result<Self> {
        let (jobs, work) = channel::<Job>();
        let run = move || {
            for job in work {
                let (id, delivery) = job.run();
                mailbox.deliver(id, delivery);
            }
        };
        let thread = threads::start("parext4-sync", run);
        let thread = thread.map_err(|e| Error::device("starting a thread for syncs", e))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }
}

impl Drop for BlockingThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("the thread for syncs panicked");
        }
    }
}

impl IoQueue {
    /// Starts the thread, unless it runs. An operation does this before it gives its buffer away.
    pub(super) fn start_blocking(&mut self) -> Result<&BlockingThread> {
        match &mut self.blocking {
            Some(thread) => Ok(thread),
            none => Ok(none.insert(BlockingThread::start(Arc::clone(&self.mailbox))?)),
        }
    }

    /// Has the thread make a call.
    pub(super) fn call(&mut self, job: Job) -> Result<()> {
        let thread = self.start_blocking()?;
        let sent = thread.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent { Ok(()) } else { Err(Error::Stopped("the thread for syncs has ended".into())) }
    }
}

//! A queued operation between its steps.

use parext4_device::AlignedBuf;
use rangelock::RangeLock;
use slab::Slab;

use super::super::DirectFile;
use super::mailbox::OpId;
use super::{IoFlags, IoRequest};
use crate::admission::{OperationsOf, Transfer};
use crate::block_io::DetachedConversion;
use crate::error::Error;
use crate::inode_ref::Hold;
use crate::mapping::Runs;
use crate::operation::Operation;
use crate::stats::ActiveOperation;
use crate::sync::Arc;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Append,
    SyncData,
    SyncAll,
}

/// An operation that is not over.
#[derive(Debug)]
pub(super) struct Pending {
    pub kind: Kind,
    pub token: u64,
    pub serial: u64,
    /// The key of its file in [`Files`].
    pub file: usize,
    pub nowait: bool,
    /// Whether the queue's thread for blocking calls has the operation and its buffer.
    pub elsewhere: bool,
    /// The buffer, while the device does not have it.
    pub buf: Option<AlignedBuf>,
    /// The buffer of a write, while the device has it too.
    pub lent: Option<Arc<AlignedBuf>>,
    /// Length of the request, in bytes.
    pub len: usize,
    /// Its steps to the range that it needs.
    pub transfer: Transfer,
    /// The range, once it is granted.
    pub hold: Option<Hold<Arc<RangeLock>>>,
    /// The entry from which waits are explained, if they are. Dropped after the range is released.
    pub here: Option<ActiveOperation<OperationsOf>>,
    /// The mapping of the operation's blocks.
    pub runs: Runs,
    pub conversion: Option<DetachedConversion>,
    /// Number of requests on the device.
    pub parts: u32,
    /// Number of requests that were handed to the device.
    pub submitted: u32,
    /// The first error of a part.
    pub error: Option<Error>,
}

impl Pending {
    pub(super) fn new(request: IoRequest, token: u64, serial: u64, file: usize, flags: IoFlags) -> Self {
        let (kind, buf, len, offset) = match request {
            IoRequest::Read { buf, len, offset } => (Kind::Read, Some(buf), len, offset),
            IoRequest::Write { buf, len, offset } => (Kind::Write, Some(buf), len, offset),
            IoRequest::Append { buf, len } => (Kind::Append, Some(buf), len, 0),
            IoRequest::SyncData => (Kind::SyncData, None, 0, 0),
            IoRequest::SyncAll => (Kind::SyncAll, None, 0, 0),
        };
        // The first step checks whether the file can hold it, and shortens a read.
        let end = offset.saturating_add(len as u64);
        let transfer = match kind {
            Kind::Append => Transfer::appending(Operation::Write { offset, end }, len as u64),
            Kind::Write => Transfer::extending(Operation::Write { offset, end }, end),
            Kind::Read | Kind::SyncData | Kind::SyncAll => Transfer::reading(Operation::Read { offset, end }),
        };
        Self {
            kind,
            token,
            serial,
            file,
            nowait: flags.nowait,
            elsewhere: false,
            buf,
            lent: None,
            len,
            transfer,
            hold: None,
            here: None,
            runs: Runs::new(),
            conversion: None,
            parts: 0,
            submitted: 0,
            error: None,
        }
    }

    /// Reduces a read, which was not admitted yet, to its first `len` bytes.
    pub(super) fn shorten_read(&mut self, len: usize) {
        let offset = self.transfer.offset();
        if len < self.len {
            self.len = len;
            self.transfer = Transfer::reading(Operation::Read { offset, end: offset + len as u64 });
        }
    }

    /// Returns the identity of the operation at `key`.
    pub(super) fn id(&self, key: usize) -> OpId {
        OpId { key, serial: self.serial }
    }

    /// Returns true if the operation waits for its range.
    pub(super) fn is_parked(&self) -> bool {
        self.hold.is_none() && !self.elsewhere && !matches!(self.kind, Kind::SyncData | Kind::SyncAll)
    }
}

/// The files with operations in flight, each held once.
#[derive(Debug, Default)]
pub(super) struct Files(Slab<Held>);

#[derive(Debug)]
struct Held {
    file: DirectFile,
    ops: u32,
}

impl Files {
    /// Holds the file for one more operation, and returns its key.
    pub(super) fn hold(&mut self, file: &DirectFile) -> usize {
        let is_it = |held: &Held| held.file.is_same(file);
        // A linear search is enough: one queue rarely has operations on many files.
        if let Some((key, held)) = self.0.iter_mut().find(|(_, held)| is_it(held)) {
            held.ops += 1;
            return key;
        }
        self.0.insert(Held { file: file.clone(), ops: 1 })
    }

    /// Releases one operation's hold of a file, which may drop the file.
    pub(super) fn release(&mut self, key: usize) {
        self.0[key].ops -= 1;
        if self.0[key].ops == 0 {
            self.0.remove(key);
        }
    }

    pub(super) fn get(&self, key: usize) -> &DirectFile {
        &self.0[key].file
    }
}

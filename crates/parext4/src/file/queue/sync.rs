//! Syncs of a queue.

use super::IoQueue;
use super::blocking::{Call, Job};
use super::pending::Kind;
use crate::error::Result;

impl IoQueue {
    pub(super) fn begin_sync(&mut self, key: usize) -> Result<()> {
        let op = &self.ops[key];
        let (id, file) = (op.id(key), self.files.get(op.file).clone());
        let call = if op.kind == Kind::SyncAll { Call::SyncAll } else { Call::SyncData };
        self.call(Job { id, file, call })
    }
}

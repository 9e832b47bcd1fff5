//! Registers the operations that are active on a file, and records and explains their waits.

use std::ops::Deref;
use std::time::Duration;

use rangelock::Mode;

use super::Admission;
use crate::inode::Inode;
use crate::inode_ref::InodeRef;
use crate::operation::Operation;
use crate::stats::{ActiveOperation, ActiveOperations, Contender, Explanation};
use crate::sync::Arc;

impl InodeRef {
    /// Registers `operation` before it requests its range, if waits are explained.
    pub(crate) fn enter(
        &self,
        operation: Operation,
        admission: &Admission,
    ) -> Option<ActiveOperation<&ActiveOperations>> {
        let present = self.engine.usage().active(&self.inode.usage)?;
        Some(ActiveOperation::enter(present, admission.range, contender(operation, admission)))
    }

    /// Like [`enter`](Self::enter), for operations that outlive the call.
    pub(crate) fn enter_queued(
        &self,
        operation: Operation,
        admission: &Admission,
    ) -> Option<ActiveOperation<OperationsOf>> {
        self.engine.usage().active(&self.inode.usage)?;
        let present = OperationsOf(Arc::clone(&self.inode));
        Some(ActiveOperation::enter(present, admission.range, contender(operation, admission)))
    }

    /// Records a wait, and explains it if `here` is an entry that [`enter`](Self::enter) returned.
    pub(crate) fn note_wait<P: Deref<Target = ActiveOperations>>(
        &self,
        waited: Duration,
        here: Option<&ActiveOperation<P>>,
    ) {
        self.record().waited(waited);
        let Some(here) = here else { return };
        let wait = Explanation {
            ino: self.ino(),
            waiter: here.contender,
            holder: here.holder,
            whole_file: self.engine.policy().locks_whole_file(),
            waited,
            times: 1,
            total: waited,
        };
        self.engine.usage().explain(&self.inode.usage, &wait);
    }
}

fn contender(operation: Operation, admission: &Admission) -> Contender {
    Contender { operation, reason: admission.reason, exclusive: admission.mode == Mode::Exclusive }
}

/// The active operations of a file. The value keeps the inode alive, and is created only if waits
/// are explained.
#[derive(Debug)]
pub(crate) struct OperationsOf(Arc<Inode>);

impl Deref for OperationsOf {
    type Target = ActiveOperations;
    fn deref(&self) -> &ActiveOperations {
        self.0.usage.active().expect("waits of this file are explained")
    }
}

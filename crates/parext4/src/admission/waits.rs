//! What was counted of a file.

use std::ops::Deref;
use std::time::Duration;

use rangelock::Mode;

use super::Admission;
use crate::inode::Inode;
use crate::node::Node;
use crate::operation::Operation;
use crate::stats::{ActiveOperation, ActiveOperations, Explanation, Party};
use crate::sync::Arc;

impl Node {
    /// Notes that `operation` is about to ask for what it needs, if waits are explained.
    pub(crate) fn enter(
        &self,
        operation: Operation,
        admission: &Admission,
    ) -> Option<ActiveOperation<&ActiveOperations>> {
        let present = self.engine.usage.active(&self.inode.usage)?;
        Some(ActiveOperation::enter(present, admission.range, party(operation, admission)))
    }

    /// As [`enter`](Self::enter), for operations that outlive the call.
    pub(crate) fn enter_queued(
        &self,
        operation: Operation,
        admission: &Admission,
    ) -> Option<ActiveOperation<OperationsOf>> {
        self.engine.usage.active(&self.inode.usage)?;
        let present = OperationsOf(Arc::clone(&self.inode));
        Some(ActiveOperation::enter(present, admission.range, party(operation, admission)))
    }

    /// Counts a wait, and explains it if `here` is what [`enter`](Self::enter) gave.
    pub(crate) fn note_wait<P: Deref<Target = ActiveOperations>>(
        &self,
        waited: Duration,
        here: Option<&ActiveOperation<P>>,
    ) {
        self.record().waited(waited);
        let Some(here) = here else { return };
        let wait = Explanation {
            ino: self.ino(),
            waiter: here.party,
            holder: here.holder,
            whole_file: self.engine.policy.locks_whole_file(),
            waited,
            times: 1,
            total: waited,
        };
        self.engine.usage.explain(&self.inode.usage, &wait);
    }
}

fn party(operation: Operation, admission: &Admission) -> Party {
    Party { operation, reason: admission.reason, exclusive: admission.mode == Mode::Exclusive }
}

/// The operations on a file, which it keeps alive. Only made where waits are explained.
#[derive(Debug)]
pub(crate) struct OperationsOf(Arc<Inode>);

impl Deref for OperationsOf {
    type Target = ActiveOperations;
    fn deref(&self) -> &ActiveOperations {
        self.0.usage.active().expect("waits of this file are explained")
    }
}

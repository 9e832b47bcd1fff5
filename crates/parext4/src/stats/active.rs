//! The active operations of a file, from which waits are explained. They are recorded only if waits
//! are to be explained.
//!
//! An operation is entered just before it requests its range, and removed just after it has
//! released the range. The two steps are not atomic with the range lock: a wait may have no holder,
//! or a holder that it did not wait for. Only the text of an explanation depends on it.

use std::ops::Deref;

use rangelock::ByteRange;

use super::explanation::Contender;
use super::waits::Waits;
use crate::sync::Mutex;
use crate::sync::Rank;

/// Limit of operations that are entered for one file. A wait for an operation that is not entered
/// has no holder.
const MAX_ACTIVE: usize = 256;

/// The active operations of one file, and its waits.
#[derive(Debug)]
pub(crate) struct ActiveOperations {
    pub waits: Waits,
    active: Mutex<ActiveList>,
}

#[derive(Debug, Default)]
struct ActiveList {
    next: u64,
    /// The active operations, in the order in which they were entered.
    entries: Vec<ActiveEntry>,
}

#[derive(Debug)]
struct ActiveEntry {
    number: u64,
    range: ByteRange,
    contender: Contender,
}

/// An active operation, until it is dropped. `P` is its reference to the operations of the file.
#[derive(Debug)]
#[must_use]
pub(crate) struct ActiveOperation<P: Deref<Target = ActiveOperations>> {
    operations: P,
    number: u64,
    pub contender: Contender,
    /// The first operation with a conflicting range when this one was entered.
    pub holder: Option<Contender>,
}

impl ActiveOperations {
    pub(crate) fn new() -> Self {
        Self { waits: Waits::new(), active: Mutex::new(Rank::Leaf, ActiveList::default()) }
    }
}

impl<P: Deref<Target = ActiveOperations>> ActiveOperation<P> {
    /// Enters an operation that is about to request `range`.
    pub(crate) fn enter(operations: P, range: ByteRange, contender: Contender) -> Self {
        let mut active = operations.active.lock();
        let conflicts = |entry: &&ActiveEntry| {
            (contender.exclusive || entry.contender.exclusive) && entry.range.overlaps(&range)
        };
        let holder = active.entries.iter().find(conflicts).map(|entry| entry.contender);
        let number = active.next;
        active.next += 1;
        if active.entries.len() < MAX_ACTIVE {
            active.entries.push(ActiveEntry { number, range, contender });
        }
        drop(active);
        Self { operations, number, contender, holder }
    }
}

impl<P: Deref<Target = ActiveOperations>> Drop for ActiveOperation<P> {
    fn drop(&mut self) {
        self.operations.active.lock().entries.retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Operation, Reason};

    fn enter(
        operations: &ActiveOperations,
        start: u64,
        end: u64,
        exclusive: bool,
    ) -> ActiveOperation<&ActiveOperations> {
        let operation = Operation::Write { offset: start, end };
        let contender = Contender { operation, reason: Reason::Read, exclusive };
        ActiveOperation::enter(operations, ByteRange::new(start, end), contender)
    }

    #[test]
    fn the_first_conflicts_is_the_holder() {
        let operations = ActiveOperations::new();
        let first = enter(&operations, 0, 10, false);
        let second = enter(&operations, 5, 20, true);
        assert_eq!(second.holder, Some(first.contender));
        assert_eq!(enter(&operations, 0, 5, false).holder, None, "shared with shared");
        assert_eq!(enter(&operations, 20, 30, true).holder, None, "elsewhere");
        assert_eq!(enter(&operations, 0, 30, false).holder, Some(second.contender));
        drop(first);
        assert_eq!(enter(&operations, 0, 30, true).holder, Some(second.contender));
    }

    #[test]
    fn too_many_are_not_entered() {
        let operations = ActiveOperations::new();
        let all: Vec<_> = (0..2 * MAX_ACTIVE as u64).map(|at| enter(&operations, at, at + 1, true)).collect();
        assert_eq!(operations.active.lock().entries.len(), MAX_ACTIVE);
        drop(all);
        assert!(operations.active.lock().entries.is_empty());
    }
}

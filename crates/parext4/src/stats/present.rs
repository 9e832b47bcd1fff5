//! Who is at work in a file, so that one who waits can say for whom. Kept only where waits are explained.
//!
//! An operation is entered just before it queues for its range and leaves just after it has released it, which
//! is not the same moment as that of the range lock: once in a while a wait has no holder, or one too many is
//! seen, who then had not to be waited for. Nothing but the text of an explanation depends on it.

use std::ops::Deref;

use rangelock::ByteRange;

use super::explanation::Party;
use super::waits::Waits;
use crate::sync::Mutex;
use crate::sync::Rank;

/// The most operations that are entered; of more, some waits have no holder.
const MOST: usize = 256;

/// The operations on one file, and its waits.
#[derive(Debug)]
pub(crate) struct Present {
    pub waits: Waits,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// In the order in which they came.
    entries: Vec<PresentOperation>,
}

#[derive(Debug)]
struct PresentOperation {
    number: u64,
    range: ByteRange,
    party: Party,
}

/// An operation that is entered, until it is dropped. `P` is how it refers to the operations on its file.
#[derive(Debug)]
#[must_use]
pub(crate) struct Here<P: Deref<Target = Present>> {
    present: P,
    number: u64,
    pub party: Party,
    /// The first of those in its way when it came.
    pub holder: Option<Party>,
}

impl Present {
    pub(crate) fn new() -> Self {
        Self { waits: Waits::new(), inside: Mutex::new(Rank::Leaf, Inside::default()) }
    }
}

impl<P: Deref<Target = Present>> Here<P> {
    /// Enters an operation that will ask for `range`.
    pub(crate) fn enter(present: P, range: ByteRange, party: Party) -> Self {
        let mut inside = present.inside.lock();
        let in_the_way = |entry: &&PresentOperation| {
            (party.exclusive || entry.party.exclusive) && entry.range.overlaps(&range)
        };
        let holder = inside.entries.iter().find(in_the_way).map(|entry| entry.party);
        let number = inside.next;
        inside.next += 1;
        if inside.entries.len() < MOST {
            inside.entries.push(PresentOperation { number, range, party });
        }
        drop(inside);
        Self { present, number, party, holder }
    }
}

impl<P: Deref<Target = Present>> Drop for Here<P> {
    fn drop(&mut self) {
        self.present.inside.lock().entries.retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Operation, Reason};

    fn enter(present: &Present, start: u64, end: u64, exclusive: bool) -> Here<&Present> {
        let operation = Operation::Write { offset: start, end };
        let party = Party { operation, reason: Reason::Read, exclusive };
        Here::enter(present, ByteRange::new(start, end), party)
    }

    #[test]
    fn the_first_in_the_way_is_the_holder() {
        let present = Present::new();
        let first = enter(&present, 0, 10, false);
        let second = enter(&present, 5, 20, true);
        assert_eq!(second.holder, Some(first.party));
        assert_eq!(enter(&present, 0, 5, false).holder, None, "shared with shared");
        assert_eq!(enter(&present, 20, 30, true).holder, None, "elsewhere");
        assert_eq!(enter(&present, 0, 30, false).holder, Some(second.party));
        drop(first);
        assert_eq!(enter(&present, 0, 30, true).holder, Some(second.party));
    }

    #[test]
    fn too_many_are_not_entered() {
        let present = Present::new();
        let all: Vec<_> = (0..2 * MOST as u64).map(|at| enter(&present, at, at + 1, true)).collect();
        assert_eq!(present.inside.lock().entries.len(), MOST);
        drop(all);
        assert!(present.inside.lock().entries.is_empty());
    }
}

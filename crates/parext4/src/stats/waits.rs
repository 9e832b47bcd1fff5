//! The explained waits of a volume or a file.

use std::cmp::Reverse;

use super::explanation::Explanation;
use crate::sync::Mutex;
use crate::sync::Rank;

/// The explained waits: one explanation for each pair of the reasons of waiter and holder. So their
/// number is bounded, and frequent waits are listed as well as long ones.
#[derive(Debug)]
pub(crate) struct Waits(Mutex<Vec<Explanation>>);

impl Waits {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }

    /// Adds one wait.
    pub(crate) fn add(&self, wait: &Explanation) {
        let reasons = |wait: &Explanation| (wait.waiter.reason, wait.holder.map(|holder| holder.reason));
        let mut waits = self.0.lock();
        let Some(same) = waits.iter_mut().find(|same| reasons(same) == reasons(wait)) else {
            return waits.push(wait.clone());
        };
        let (times, total) = (same.times + wait.times, same.total + wait.total);
        if wait.waited > same.waited {
            *same = wait.clone();
        }
        (same.times, same.total) = (times, total);
    }

    /// Returns all explanations, ordered by their total time, the longest first.
    pub(crate) fn explain(&self) -> Vec<Explanation> {
        let mut waits = self.0.lock().clone();
        waits.sort_by_key(|wait| Reverse(wait.total));
        waits
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parext4_format::InodeNo;

    use super::*;
    use crate::operation::{Operation, Reason};
    use crate::stats::Contender;

    #[test]
    fn the_longest_stands_for_those_with_its_reasons() {
        let waits = Waits::new();
        let wait = |size: u64, reason: Reason, ms: u64| {
            let waiter = Contender { operation: Operation::SetLen { size }, reason, exclusive: true };
            let waited = Duration::from_millis(ms);
            let ino = InodeNo(12);
            Explanation { ino, waiter, holder: None, whole_file: false, waited, times: 1, total: waited }
        };
        for (size, ms) in [(1, 5), (2, 30), (3, 10)] {
            waits.add(&wait(size, Reason::SetsSize, ms));
        }
        waits.add(&wait(4, Reason::Allocates, 40));
        let [first, second] = waits.explain().try_into().unwrap();
        assert_eq!(first.waiter.operation, Operation::SetLen { size: 2 });
        assert_eq!((first.times, first.total, first.waited.as_millis()), (3, Duration::from_millis(45), 30));
        assert_eq!((second.waiter.reason, second.times), (Reason::Allocates, 1));
    }
}

//! The offset of the next append.

use crate::fault::{Fault, guarded};

/// The end of all data that is written or will be. Appends extend it atomically (H27).
///
/// An append *claims* bytes at the end. Any other operation that extends the file *announces* the
/// end that it will reach. Both enter the queue of the file's ranges while this lock is held, so
/// overlapping operations are granted in the order of their offsets.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Offset in bytes. At least the visible size; larger while operations that extend the file are
    /// in flight.
    end: u64,
    /// Number of claims of appends in flight.
    claims: u32,
    /// The announced ends that are not withdrawn.
    announced: Vec<u64>,
    /// Incremented by each operation that sets the size. Earlier claims are then void.
    epoch: u64,
}

/// Bytes claimed by an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub offset: u64,
    len: u64,
    epoch: u64,
}

impl Tail {
    pub(crate) fn at(size: u64) -> Self {
        Self { end: size, claims: 0, announced: Vec::new(), epoch: 0 }
    }

    /// Returns true if no end is claimed or announced.
    pub(crate) fn is_idle(&self) -> bool {
        self.claims == 0 && self.announced.is_empty()
    }

    /// Returns the offset of the next claim.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Claims `len` bytes at the end.
    pub(crate) fn claim(&mut self, len: u64) -> Claim {
        let claim = Claim { offset: self.end, len, epoch: self.epoch };
        self.end = self.end.saturating_add(len);
        self.claims += 1;
        claim
    }

    /// Returns true if the claim is not void.
    pub(crate) fn holds(&self, claim: Claim) -> bool {
        self.epoch == claim.epoch
    }

    /// Ends a claim. An unused claim is undone if no other claim follows it, as far as no announced
    /// end lies in it. Otherwise it leaves a hole.
    pub(crate) fn end_claim(&mut self, claim: Claim, used: bool, size: u64) {
        self.claims -= 1;
        let claim_end = claim.offset.saturating_add(claim.len);
        let last = guarded!(Fault::FailedClaimTakesAll, self.end == claim_end, true);
        if !used && self.holds(claim) && last {
            // A part of it may be visible already. Writes past the end announce theirs while the
            // claim is in flight, and have raised the size before they withdraw it.
            let least = claim.offset.max(size);
            self.end = guarded!(Fault::FailedClaimTakesAnnounced, self.at_least_announced(least), least);
        }
        self.recompute_end(size);
    }

    /// Announces that an operation will extend the file to `end`. Appends then begin at or after
    /// `end`.
    pub(crate) fn announce(&mut self, end: u64) {
        self.announced.push(end);
        self.end = self.end.max(end);
    }

    /// Withdraws an announcement, whether or not the file was extended.
    pub(crate) fn withdraw(&mut self, end: u64, size: u64) {
        if let Some(at) = self.announced.iter().position(|&announced| announced == end) {
            self.announced.swap_remove(at);
        }
        self.recompute_end(size);
    }

    /// If no append is in flight, sets the end to the size or to the largest announced end, so that
    /// a failed append has no effect.
    fn recompute_end(&mut self, size: u64) {
        if self.claims == 0 {
            self.end = self.at_least_announced(size);
        }
    }

    /// Sets the size. All claims become void.
    pub(crate) fn set(&mut self, size: u64) {
        self.epoch += 1;
        self.end = self.at_least_announced(size);
    }

    /// Returns the largest announced end, or `end` if that is larger.
    fn at_least_announced(&self, end: u64) -> u64 {
        self.announced.iter().copied().fold(end, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_follow_each_other() {
        let mut tail = Tail::at(100);
        let first = tail.claim(10);
        let second = tail.claim(20);
        assert_eq!((first.offset, second.offset, tail.end()), (100, 110, 130));
        tail.end_claim(first, false, 100);
        assert_eq!(tail.end(), 130, "a failed claim before another stays a hole");
        tail.end_claim(second, true, 130);
        assert_eq!(tail.end(), 130);
    }

    #[test]
    fn what_fails_leaves_no_trace_once_all_is_quiet() {
        let mut tail = Tail::at(100);
        let only = tail.claim(10);
        tail.end_claim(only, false, 100);
        assert_eq!(tail.end(), 100);
        tail.announce(5000);
        assert_eq!(tail.claim(10).offset, 5000);
        tail.withdraw(5000, 100);
        assert_eq!(tail.end(), 5010, "the append after it is still in flight");
        tail.end_claim(Claim { offset: 5000, len: 10, epoch: 0 }, false, 100);
        assert_eq!(tail.end(), 100);
    }

    #[test]
    fn a_claim_that_fails_leaves_the_ends_that_were_announced_in_it() {
        let mut tail = Tail::at(100);
        let first = tail.claim(10);
        let second = tail.claim(20);
        tail.announce(120);
        tail.end_claim(second, false, 100);
        assert_eq!(tail.end(), 120, "another append is in flight");
        tail.withdraw(120, 120);
        assert_eq!(tail.end(), 120);
        let third = tail.claim(20);
        tail.end_claim(third, false, 130);
        assert_eq!(tail.end(), 130, "a write in the claim has raised the size and withdrawn its end");
        tail.end_claim(first, true, 130);
        assert_eq!(tail.end(), 130);
    }

    #[test]
    fn a_new_size_voids_claims_but_not_announcements() {
        let mut tail = Tail::at(0);
        let claim = tail.claim(10);
        tail.announce(8192);
        tail.set(4);
        assert!(!tail.holds(claim));
        assert_eq!(tail.end(), 8192);
        tail.end_claim(claim, false, 4);
        tail.withdraw(8192, 4);
        assert_eq!(tail.end(), 4);
    }
}

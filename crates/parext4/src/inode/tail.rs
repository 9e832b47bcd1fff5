//! Where the next append goes.

use crate::fault::{Fault, planted};

/// The end of everything that is written or about to be, which appends add to atomically (H27).
///
/// Appends *claim* bytes at the end; other operations that extend the file *announce* the end that they will
/// reach. Either takes its place in the queue of the file's ranges under the same hold of this lock, so the
/// order of offsets is the order in which overlapping operations are granted.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Bytes. At least the visible size; beyond it while extending operations are under way.
    end: u64,
    /// Claims that are not settled.
    claims: u32,
    /// Ends announced and not yet withdrawn.
    announced: Vec<u64>,
    /// Raised by every operation that sets the size outright; claims from before are void.
    epoch: u64,
}

/// Bytes handed out to an append.
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

    /// Where the next claim will start.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Hands out `len` bytes at the end.
    pub(crate) fn claim(&mut self, len: u64) -> Claim {
        let claim = Claim { offset: self.end, len, epoch: self.epoch };
        self.end = self.end.saturating_add(len);
        self.claims += 1;
        claim
    }

    /// Whether the claimed bytes still are where the append belongs.
    pub(crate) fn holds(&self, claim: Claim) -> bool {
        self.epoch == claim.epoch
    }

    /// Ends a claim. One that was not used is taken back if no other came after it; else it leaves a hole.
    pub(crate) fn settle(&mut self, claim: Claim, used: bool, size: u64) {
        self.claims -= 1;
        let last = self.end == claim.offset.saturating_add(claim.len) || planted(Fault::FailedClaimTakesAll);
        if !used && self.holds(claim) && last {
            // Some of it may show already.
            self.end = claim.offset.max(size);
        }
        self.settle_end(size);
    }

    /// Notes that an operation will extend the file to `end`, so that appends go behind it.
    pub(crate) fn announce(&mut self, end: u64) {
        self.announced.push(end);
        self.end = self.end.max(end);
    }

    /// Ends an announcement, whether or not the file now reaches to its end.
    pub(crate) fn withdraw(&mut self, end: u64, size: u64) {
        if let Some(at) = self.announced.iter().position(|&announced| announced == end) {
            self.announced.swap_remove(at);
        }
        self.settle_end(size);
    }

    /// With no append under way, the end is the size or what others will extend it to: what failed leaves
    /// no trace.
    fn settle_end(&mut self, size: u64) {
        if self.claims == 0 {
            self.end = self.announced.iter().copied().fold(size, u64::max);
        }
    }

    /// The size was set outright: claims that still wait are void.
    pub(crate) fn set(&mut self, size: u64) {
        self.epoch += 1;
        self.end = self.announced.iter().copied().fold(size, u64::max);
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
        tail.settle(first, false, 100);
        assert_eq!(tail.end(), 130, "a failed claim before another stays a hole");
        tail.settle(second, true, 130);
        assert_eq!(tail.end(), 130);
    }

    #[test]
    fn what_fails_leaves_no_trace_once_all_is_quiet() {
        let mut tail = Tail::at(100);
        let only = tail.claim(10);
        tail.settle(only, false, 100);
        assert_eq!(tail.end(), 100);
        tail.announce(5000);
        assert_eq!(tail.claim(10).offset, 5000);
        tail.withdraw(5000, 100);
        assert_eq!(tail.end(), 5010, "the append behind it is still under way");
        tail.settle(Claim { offset: 5000, len: 10, epoch: 0 }, false, 100);
        assert_eq!(tail.end(), 100);
    }

    #[test]
    fn a_new_size_voids_claims_but_not_announcements() {
        let mut tail = Tail::at(0);
        let claim = tail.claim(10);
        tail.announce(8192);
        tail.set(4);
        assert!(!tail.holds(claim));
        assert_eq!(tail.end(), 8192);
        tail.settle(claim, false, 4);
        tail.withdraw(8192, 4);
        assert_eq!(tail.end(), 4);
    }
}

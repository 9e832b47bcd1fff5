//! Where the next append goes.

/// The end of everything that is written or about to be, which appends add to atomically (H27).
#[derive(Debug)]
pub(crate) struct Tail {
    /// Bytes. At least the visible size; beyond it while extending writes are in flight.
    end: u64,
    /// Raised by every operation that sets the size outright; offsets handed out before are void then.
    epoch: u64,
    /// Whether the rest of the last block, behind the size, is known to be zeros on the device. A volume
    /// written by others does not promise it (H3).
    clean: bool,
}

/// An offset handed out to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub offset: u64,
    epoch: u64,
}

impl Tail {
    pub(crate) fn at(size: u64) -> Self {
        // No block is larger, so a size on this boundary leaves no rest of a block.
        const LARGEST_BLOCK: u64 = 65536;
        Self { end: size, epoch: 0, clean: size.is_multiple_of(LARGEST_BLOCK) }
    }

    /// Hands out `len` bytes at the end.
    pub(crate) fn claim(&mut self, len: u64) -> Claim {
        let claim = Claim { offset: self.end, epoch: self.epoch };
        self.end = self.end.saturating_add(len);
        claim
    }

    /// Whether the claimed offset still is where the append belongs.
    pub(crate) fn holds(&self, claim: Claim) -> bool {
        self.epoch == claim.epoch
    }

    /// Takes back the claim of an append that failed, if none came after it. Else it leaves a hole.
    pub(crate) fn give_back(&mut self, claim: Claim, len: u64) {
        if self.holds(claim) && self.end == claim.offset.saturating_add(len) {
            self.end = claim.offset;
        }
    }

    /// Notes a write that ends at `end`, so that appends go behind it.
    pub(crate) fn raise(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Sets the end to a new size.
    pub(crate) fn set(&mut self, size: u64) {
        self.end = size;
        self.epoch += 1;
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.clean
    }

    pub(crate) fn set_clean(&mut self) {
        self.clean = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_follow_each_other_and_a_failed_last_one_is_reused() {
        let mut tail = Tail::at(100);
        let first = tail.claim(10);
        let second = tail.claim(20);
        assert_eq!((first.offset, second.offset), (100, 110));
        tail.give_back(first, 10);
        assert_eq!(tail.claim(1).offset, 130, "a failed claim in the middle stays a hole");
        let mut tail = Tail::at(100);
        let only = tail.claim(10);
        tail.give_back(only, 10);
        assert_eq!(tail.claim(1).offset, 100);
    }

    #[test]
    fn a_new_size_voids_claims() {
        let mut tail = Tail::at(0);
        let claim = tail.claim(10);
        tail.set(4);
        assert!(!tail.holds(claim));
        tail.give_back(claim, 10);
        assert_eq!(tail.claim(1).offset, 4);
    }
}

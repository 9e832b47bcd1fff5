//! Space for data that is in memory only and gets its place when it is written back (delayed allocation).

use super::{Allocator, Reservation};
use crate::error::Result;
use crate::sync::atomic::Ordering;

/// So many blocks of data come with one for the trees that will map them. In blocks of 1 KiB a leaf of a tree has 84
/// entries, and one that was split is half full, so each block of data could become an extent of its own.
const PER_TREE_BLOCK: u64 = 32;

/// What the trees may need for so many blocks of data.
fn tree_blocks(data: u64) -> u64 {
    data.div_ceil(PER_TREE_BLOCK)
}

impl Allocator {
    /// Keeps space for `blocks` of data that will be written back.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace): the place to hear of it is here, not when it is written back.
    pub(crate) fn delay(&self, blocks: u32) -> Result<()> {
        let blocks = u64::from(blocks);
        // Rounded up, as others may pass the next multiple first.
        let most = blocks + tree_blocks(blocks);
        self.claim_data(most)?;
        let before = self.delayed.fetch_add(blocks, Ordering::Relaxed);
        self.unclaim(most - kept(before, blocks));
        Ok(())
    }

    /// Takes back what was [kept](Self::delay) for `blocks` of data: they are about to get their place, or will never
    /// need one.
    pub(crate) fn undelay(&self, blocks: u32) -> Reservation<'_> {
        let blocks = u64::from(blocks);
        let before = self.delayed.fetch_sub(blocks, Ordering::Relaxed);
        self.attach(u32::try_from(kept(before.saturating_sub(blocks), blocks)).unwrap_or(u32::MAX))
    }

    /// Keeps space once more for `blocks` of data that did not get their place after all, out of what was taken back
    /// for them.
    pub(crate) fn delay_again(&self, reservation: Reservation<'_>, blocks: u32) {
        let before = self.delayed.fetch_add(blocks.into(), Ordering::Relaxed);
        let want = kept(before, blocks.into());
        let have = u64::from(reservation.detach());
        // One block may be missing for the trees; it counts as taken all the same.
        if have >= want {
            self.unclaim(have - want);
        } else {
            self.unclaimed.fetch_sub(i64::try_from(want - have).unwrap_or(0), Ordering::Acquire);
        }
    }

    /// Blocks that are kept so, those for the trees included.
    pub(crate) fn delayed_blocks(&self) -> u64 {
        let data = self.delayed.load(Ordering::Relaxed);
        data + tree_blocks(data)
    }
}

/// What `blocks` of data keep that come to `before` others. Whoever adds some and whoever takes some away agree on
/// the sum, in whatever order they come.
fn kept(before: u64, blocks: u64) -> u64 {
    blocks + tree_blocks(before + blocks) - tree_blocks(before)
}

#[cfg(test)]
mod tests {
    use super::super::tests::volume;
    use crate::sync::atomic::Ordering;

    #[test]
    fn what_is_kept_comes_back() {
        let volume = volume();
        let allocator = &volume.engine.allocator;
        let free = || allocator.unclaimed.load(Ordering::Relaxed);
        let before = free();
        for blocks in [1, 31, 1, 33, 500] {
            allocator.delay(blocks).unwrap();
        }
        assert_eq!(allocator.delayed_blocks(), 566 + 18);
        assert_eq!(before - free(), 566 + 18);
        allocator.delay_again(allocator.undelay(40), 40);
        for blocks in [66, 250, 249, 1] {
            drop(allocator.undelay(blocks));
        }
        assert_eq!((free(), allocator.delayed_blocks()), (before, 0));
    }

    #[test]
    fn who_needs_nothing_gets_it_when_too_much_is_kept() {
        let volume = volume();
        let allocator = &volume.engine.allocator;
        let all = u32::try_from(allocator.unclaimed.load(Ordering::Relaxed)).unwrap();
        allocator.delay_again(allocator.reserve(0).unwrap(), all + 1);
        assert!(allocator.reserve(1).is_err() && allocator.reserve(0).is_ok());
        drop(allocator.undelay(all + 1));
    }

    #[test]
    fn no_more_is_kept_than_there_is() {
        let volume = volume();
        let allocator = &volume.engine.allocator;
        let mut kept = 0;
        while allocator.delay(64).is_ok() {
            kept += 64;
        }
        assert!(kept > 1000 && allocator.claim_data(70).is_err());
        drop(allocator.undelay(kept));
        allocator.claim_data(1000).unwrap();
    }
}

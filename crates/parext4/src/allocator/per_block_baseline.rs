//! Allocation of one block at a time from one goal shared by all files, so that concurrent requests
//! interleave. It is a baseline for comparisons (`ResearchOptions::serialize_allocation_from`).

use parext4_format::FsBlock;

use super::blocks::append;
use super::free_extents::End;
use super::{AllocMode, Allocator, MAX_GROUPS, MAX_RUNS, Reservation, Runs};
use crate::error::Result;
use crate::sync::atomic::Ordering;

impl Allocator {
    /// Allocates up to `want` data blocks from `claim`, one by one.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(super) fn allocate_per_block(
        &self,
        mode: AllocMode<'_>,
        want: u32,
        claim: &mut Reservation<'_>,
    ) -> Result<Runs> {
        let mut runs = Runs::new();
        let mut found = Ok(());
        let (mut group, mut groups) = (None, 0);
        let mut left = want;
        while found.is_ok() && left > 0 && runs.len() < MAX_RUNS && groups < MAX_GROUPS {
            // Relaxed suffices: the counter is a hint, and two threads may get the same goal.
            let goal = FsBlock(self.shared_goal.fetch_add(1, Ordering::Relaxed));
            let mut block = Runs::new();
            found = self.find(mode, goal, 1, End::First, &mut block);
            for run in block {
                if run.start != goal {
                    self.shared_goal.store(run.start.get() + 1, Ordering::Relaxed);
                }
                let of = Some(self.units.group_of(run.start).0);
                groups += u32::from(group.replace(of) != Some(of));
                left -= run.len;
                append(&mut runs, run);
            }
        }
        self.finish_allocation(mode, claim, runs, found)
    }
}

//! Keeps the jobs of a run in step, as fio's `flow` does: each job does the same work in the same
//! time.
//!
//! If the files of several jobs do not fit a cache together, jobs whose files are in it run at the
//! speed of memory and keep their files there, while the other jobs wait for the device. The sum of
//! their rates then tells the share of the operations that missed the cache, not the cost of a
//! miss. In step, all jobs have the same share of misses.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Operations by which a job may be ahead of the slowest job.
const MAX_LEAD: u64 = 1024;
/// Operations of a job between two checks of its lead.
const STRIDE: u64 = 64;

/// The progress of the jobs of a run.
pub struct Lockstep {
    /// Operations by job; `u64::MAX` after the job has ended.
    done: Mutex<Vec<u64>>,
    changed: Condvar,
}

/// One job of a run. After it is dropped, no job waits for it.
pub struct Member<'a> {
    lockstep: &'a Lockstep,
    nth: usize,
    done: u64,
}

impl Lockstep {
    /// Returns the progress of `jobs` jobs.
    pub fn new(jobs: usize) -> Self {
        Self { done: Mutex::new(vec![0; jobs]), changed: Condvar::new() }
    }

    /// Returns the member for job number `nth`.
    pub fn member(&self, nth: usize) -> Member<'_> {
        Member { lockstep: self, nth, done: 0 }
    }

    fn set(&self, nth: usize, done: u64) -> MutexGuard<'_, Vec<u64>> {
        let mut all = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let slowest = all.iter().min().copied();
        all[nth] = done;
        if all.iter().min().copied() != slowest {
            self.changed.notify_all();
        }
        all
    }
}

impl Member<'_> {
    /// Counts completed operations, and blocks while the job is too far ahead. Returns true if it
    /// checked the lead, which takes time.
    pub fn advance(&mut self, count: usize) -> bool {
        let before = self.done / STRIDE;
        self.done += count as u64;
        if self.done / STRIDE == before {
            return false;
        }
        let too_far = |all: &mut Vec<u64>| all.iter().any(|&done| done.saturating_add(MAX_LEAD) < self.done);
        drop(self.lockstep.changed.wait_while(self.lockstep.set(self.nth, self.done), too_far));
        true
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        drop(self.lockstep.set(self.nth, u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_fast_job_waits_for_a_slow_one_until_that_ends() {
        let (lockstep, fast, most_ahead) = (Lockstep::new(2), AtomicU64::new(0), AtomicU64::new(0));
        let mut slow_member = lockstep.member(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut member = lockstep.member(1);
                for done in 1..20_000 {
                    fast.store(done, Ordering::Relaxed);
                    member.advance(1);
                }
            });
            for slow in 1..100 * STRIDE {
                most_ahead.fetch_max(fast.load(Ordering::Relaxed).saturating_sub(slow), Ordering::Relaxed);
                slow_member.advance(1);
                if slow % 1000 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
            assert!(most_ahead.load(Ordering::Relaxed) <= MAX_LEAD + 2 * STRIDE, "{most_ahead:?}");
            drop(slow_member);
        });
        assert_eq!(fast.load(Ordering::Relaxed), 19_999);
    }
}

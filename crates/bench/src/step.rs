//! Keeps the jobs of a run in step, as fio's `flow` does: each job does the same work in the same time.
//!
//! Where jobs with a file each do not fit a cache together, the ones whose files are in it run at the speed of memory and
//! keep them there, and the others wait for the device. The sum of their rates then says which share of the operations
//! missed the cache, not what a miss costs. In step, all jobs miss alike.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Operations by which a job may be ahead of the slowest one.
const AHEAD: u64 = 1024;
/// Operations of a job between two looks at the others.
const STRIDE: u64 = 64;

/// What the jobs of a run have done.
pub struct Steps {
    /// Operations by job; `u64::MAX` once it has ended.
    done: Mutex<Vec<u64>>,
    changed: Condvar,
}

/// One job of a run; the others no longer wait for it once this is dropped.
pub struct Pace<'a> {
    steps: &'a Steps,
    nth: usize,
    done: u64,
}

impl Steps {
    /// For this number of jobs.
    pub fn new(jobs: usize) -> Self {
        Self { done: Mutex::new(vec![0; jobs]), changed: Condvar::new() }
    }

    /// For job number `nth`.
    pub fn pace(&self, nth: usize) -> Pace<'_> {
        Pace { steps: self, nth, done: 0 }
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

impl Pace<'_> {
    /// Counts operations that are done. Blocks while the job is too far ahead; returns whether it looked for that, which
    /// takes time.
    pub fn advance(&mut self, count: usize) -> bool {
        let before = self.done / STRIDE;
        self.done += count as u64;
        if self.done / STRIDE == before {
            return false;
        }
        let too_far = |all: &mut Vec<u64>| all.iter().any(|&done| done.saturating_add(AHEAD) < self.done);
        drop(self.steps.changed.wait_while(self.steps.set(self.nth, self.done), too_far));
        true
    }
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        drop(self.steps.set(self.nth, u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_fast_job_waits_for_a_slow_one_until_that_ends() {
        let (steps, fast, most_ahead) = (Steps::new(2), AtomicU64::new(0), AtomicU64::new(0));
        let mut slow_pace = steps.pace(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pace = steps.pace(1);
                for done in 1..20_000 {
                    fast.store(done, Ordering::Relaxed);
                    pace.advance(1);
                }
            });
            for slow in 1..100 * STRIDE {
                most_ahead.fetch_max(fast.load(Ordering::Relaxed).saturating_sub(slow), Ordering::Relaxed);
                slow_pace.advance(1);
                if slow % 1000 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
            assert!(most_ahead.load(Ordering::Relaxed) <= AHEAD + 2 * STRIDE, "{most_ahead:?}");
            drop(slow_pace);
        });
        assert_eq!(fast.load(Ordering::Relaxed), 19_999);
    }
}

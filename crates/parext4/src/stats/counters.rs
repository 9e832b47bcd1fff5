//! Counters of operations, striped over cache lines: an update is one relaxed addition for each
//! counter, without contention.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rangelock::Mode;

use super::Stats;
use crate::operation::Reason;
use crate::stripes::Stripes;

/// The counters of a volume.
pub(crate) type VolumeCounters = Stripes<Counters, 16>;
/// The counters of a file. It has fewer stripes, because there are many files.
pub(crate) type FileCounters = Stripes<Counters, 4>;

/// One stripe of counters. The atomics are [`std`]'s also under the model checker: no decision
/// depends on a counter, so models need not schedule threads around it.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Number of admitted operations, by reason and by mode: shared, exclusive.
    admissions: [[AtomicU64; 2]; Reason::ALL.len()],
    drains: AtomicU64,
    waits: AtomicU64,
    /// Sum of the waits, and the longest wait, in nanoseconds.
    waited: AtomicU64,
    longest_wait: AtomicU64,
    bytes_zeroed: AtomicU64,
    conversions: AtomicU64,
    conversions_merged: AtomicU64,
    blocks_converted: AtomicU64,
    zero_outs: AtomicU64,
    nowait_refusals: AtomicU64,
}

/// The counters to which one file's operations are added: the volume's and the file's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a>([&'a Counters; 2]);

impl<'a> Record<'a> {
    pub(crate) fn new(volume: &'a VolumeCounters, file: &'a FileCounters) -> Self {
        Self([volume.mine(), file.mine()])
    }

    fn add(self, counter: impl Fn(&Counters) -> &AtomicU64, amount: u64) {
        for counters in self.0 {
            counter(counters).fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Counts an operation that was admitted in `mode`.
    pub(crate) fn admitted(self, reason: Reason, mode: Mode, drains: bool) {
        self.add(|counters| &counters.admissions[reason as usize][usize::from(mode == Mode::Exclusive)], 1);
        if drains {
            self.add(|counters| &counters.drains, 1);
        }
    }

    /// Counts a wait.
    pub(crate) fn waited(self, time: Duration) {
        // 64 bits hold 584 years in nanoseconds.
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.add(|counters| &counters.waits, 1);
        self.add(|counters| &counters.waited, time);
        for counters in self.0 {
            counters.longest_wait.fetch_max(time, Ordering::Relaxed);
        }
    }

    /// Counts zeros that were written around data or after the end of the file.
    pub(crate) fn zeroed(self, bytes: u64) {
        self.add(|counters| &counters.bytes_zeroed, bytes);
    }

    /// Counts a write that converted unwritten blocks. `merged` is true if its conversion shared a
    /// change of the map, or a handle, with another write.
    pub(crate) fn converted(self, blocks: u64, merged: bool) {
        self.add(|counters| &counters.conversions, 1);
        self.add(|counters| &counters.blocks_converted, blocks);
        if merged {
            self.add(|counters| &counters.conversions_merged, 1);
        }
    }

    /// Counts a write that zeroed and converted blocks beside its data, because the extent could
    /// not be split.
    pub(crate) fn zeroed_out(self) {
        self.add(|counters| &counters.zero_outs, 1);
    }

    /// Counts a refused NOWAIT operation.
    pub(crate) fn refused(self) {
        self.add(|counters| &counters.nowait_refusals, 1);
    }
}

impl Counters {
    /// Adds the counters of this stripe to `stats`.
    fn add_to(&self, stats: &mut Stats) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let time = |counter: &AtomicU64| Duration::from_nanos(count(counter));
        for ([shared, exclusive], sum) in self.admissions.iter().zip(&mut stats.admissions) {
            sum.shared += count(shared);
            sum.exclusive += count(exclusive);
        }
        stats.drains += count(&self.drains);
        stats.waits += count(&self.waits);
        stats.waited += time(&self.waited);
        stats.longest_wait = stats.longest_wait.max(time(&self.longest_wait));
        stats.bytes_zeroed += count(&self.bytes_zeroed);
        stats.conversions += count(&self.conversions);
        stats.conversions_merged += count(&self.conversions_merged);
        stats.blocks_converted += count(&self.blocks_converted);
        stats.zero_outs += count(&self.zero_outs);
        stats.nowait_refusals += count(&self.nowait_refusals);
    }
}

impl<const N: usize> Stripes<Counters, N> {
    /// Returns `stats` with the counters of all stripes added. Each counter is read at some moment
    /// during the call.
    pub(crate) fn sum_into(&self, mut stats: Stats) -> Stats {
        self.iter().for_each(|counters| counters.add_to(&mut stats));
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::stats::Admissions;

    #[test]
    fn all_threads_are_counted_for_volume_and_file() {
        let (volume, files) = (VolumeCounters::default(), [FileCounters::default(), FileCounters::default()]);
        std::thread::scope(|scope| {
            for (thread, file) in [0, 1, 0, 1].into_iter().zip(files.iter().cycle()) {
                let volume = &volume;
                scope.spawn(move || {
                    let record = Record::new(volume, file);
                    record.admitted(Reason::Read, Mode::Shared, false);
                    record.admitted(Reason::SetsSize, Mode::Exclusive, true);
                    record.waited(Duration::from_micros(10 + thread));
                    record.zeroed(512);
                    record.converted(3, thread == 1);
                    record.zeroed_out();
                    record.refused();
                });
            }
        });
        let [all, second] = [volume.sum_into(Stats::new(Policy::Range)), files[1].sum_into(Stats::default())];
        let one = |shared, exclusive| Admissions { shared, exclusive };
        assert_eq!((all.admissions(Reason::Read), all.admitted()), (one(4, 0), one(4, 4)));
        assert_eq!((all.drains, all.waits, all.bytes_zeroed, all.conversions), (4, 4, 2048, 4));
        assert_eq!((all.blocks_converted, all.conversions_merged), (12, 2));
        assert_eq!((all.zero_outs, all.nowait_refusals), (4, 4));
        assert_eq!((all.waited, all.longest_wait), (Duration::from_micros(42), Duration::from_micros(11)));
        assert_eq!((second.waits, second.waited), (2, Duration::from_micros(22)));
    }

    #[test]
    fn a_stripe_is_a_whole_number_of_lines() {
        assert_eq!(size_of::<crate::stripes::Padded<Counters>>(), 384);
    }
}

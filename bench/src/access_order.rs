//! The order in which a thread visits the blocks of its file.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::job::{Job, Rw};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    pub kind: Kind,
    /// Byte offset; 0 for an append.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Append,
    /// Makes all completed writes durable.
    Sync,
}

/// Largest number of visits that a thread takes from the common order at a time.
const MAX_BATCH: u64 = 16;
/// Smallest number of batches of each thread in a pass. With several, all threads end at about the
/// same time.
const MIN_BATCHES: u64 = 8;

/// Chooses the operations of a thread. The threads of one file take batches from a common order of
/// its blocks, so that each pass visits each block once, whatever the speed of each thread.
#[derive(Clone, Debug)]
pub struct AccessOrder {
    job: Job,
    positions: u64,
    /// Number of batches that the threads of the file have taken.
    taken: Arc<AtomicU64>,
    batch_len: u64,
    /// The rest of the thread's batch.
    batch: Range<u64>,
    /// Number of the pass that the batch belongs to.
    pass: u64,
    /// The order of the blocks in the pass.
    permutation: Permutation,
}

impl AccessOrder {
    /// Returns the order for one of the job's files, which `threads` threads share. Clones take
    /// their batches from the same order.
    pub fn new(job: &Job, threads: u32) -> Self {
        let positions = job.positions();
        Self {
            job: job.clone(),
            positions,
            taken: Arc::default(),
            batch_len: (positions / u64::from(threads) / MIN_BATCHES).clamp(1, MAX_BATCH),
            batch: 0..0,
            pass: 0,
            permutation: Permutation::new(positions, 0),
        }
    }

    /// Returns the next operation, or `None` after the last pass.
    pub fn next(&mut self) -> Option<Io> {
        let nth = match self.batch.next() {
            Some(nth) => nth,
            None => self.take()?,
        };
        let position = if self.job.rw.is_random() { self.permutation.at(nth) } else { nth };
        let kind = self.kind(position);
        let offset = if kind == Kind::Append { 0 } else { position * self.job.align + self.job.shift };
        Some(Io { kind, offset, len: self.len(position) })
    }

    /// Takes the next batch and returns its first visit.
    fn take(&mut self) -> Option<u64> {
        let batches = self.positions.div_ceil(self.batch_len);
        // Relaxed: the counter publishes no other data.
        let nth = self.taken.fetch_add(1, Ordering::Relaxed);
        let (pass, start) = (nth / batches, nth % batches * self.batch_len);
        if pass >= self.job.passes() {
            return None;
        }
        if pass != self.pass {
            self.pass = pass;
            self.permutation = Permutation::new(self.positions, pass);
        }
        self.batch = start..(start + self.batch_len).min(self.positions);
        self.batch.next()
    }

    fn kind(&self, position: u64) -> Kind {
        match self.job.rw {
            Rw::Read | Rw::RandRead => Kind::Read,
            Rw::Write | Rw::RandWrite => Kind::Write,
            Rw::Append => Kind::Append,
            Rw::RandMixed if mix(position ^ self.pass << 48) % 100 < u64::from(self.job.read_percent) => {
                Kind::Read
            }
            Rw::RandMixed => Kind::Write,
        }
    }

    fn len(&self, position: u64) -> u64 {
        let block = self.job.block;
        if block.min == block.max {
            return block.max;
        }
        block.min * (1 + mix(position ^ self.pass << 48 ^ 1 << 47) % (block.max / block.min))
    }
}

/// A permutation of the numbers below `count`, computed without a table.
#[derive(Clone, Copy, Debug)]
struct Permutation {
    count: u64,
    mask: u64,
    /// Half the number of bits in `mask`.
    fold: u32,
    seed: u64,
}

impl Permutation {
    fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        let mask = 1_u64.checked_shl(bits).unwrap_or(0).wrapping_sub(1);
        Self { count, mask, fold: (bits / 2).max(1), seed: mix(seed) }
    }

    /// Returns the image of `number`. Each step is a bijection within `mask`. Repeating the steps
    /// until the number is below `count` gives a bijection of the numbers below `count`.
    fn at(&self, mut number: u64) -> u64 {
        loop {
            for odd in [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9] {
                number = number.wrapping_add(self.seed) & self.mask;
                number = number.wrapping_mul(odd) & self.mask;
                number ^= number >> self.fold;
            }
            if number < self.count {
                return number;
            }
        }
    }
}

/// Returns a hash: the finalizer of SplitMix64.
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::job::{BlockSize, Layout};
    use super::*;

    fn job(rw: Rw, layout: Layout) -> Job {
        Job { rw, layout, ..Job::sample(1000 * 4096) }
    }

    #[test]
    fn a_pass_visits_every_block_once_at_any_speed() {
        for rw in [Rw::RandWrite, Rw::Write] {
            let mut slow = AccessOrder::new(&job(rw, Layout::Unwritten), 2);
            let mut fast = slow.clone();
            let mut offsets = BTreeSet::new();
            let mut visits = 0;
            while let Some(io) = fast.next() {
                offsets.insert(io.offset);
                visits += 1;
                if visits % 5 == 0
                    && let Some(io) = slow.next()
                {
                    offsets.insert(io.offset);
                    visits += 1;
                }
            }
            let rest: Vec<u64> = std::iter::from_fn(|| slow.next()).map(|io| io.offset).collect();
            visits += rest.len();
            offsets.extend(rest);
            assert!(visits == 1000 && offsets.into_iter().eq((0..1000).map(|block| block * 4096)), "{rw:?}");
        }
    }

    #[test]
    fn written_files_are_visited_again_in_another_order() {
        let mut order = AccessOrder::new(&job(Rw::RandWrite, Layout::Written), 1);
        let first: Vec<_> = (0..1000).filter_map(|_| order.next()).collect();
        let second: Vec<_> = (0..1000).filter_map(|_| order.next()).collect();
        assert_eq!(second.len(), 1000);
        assert_ne!(first, second);
        let offsets: BTreeSet<u64> = second.iter().map(|io| io.offset).collect();
        assert_eq!(offsets.len(), 1000);
    }

    #[test]
    fn the_number_of_passes_is_limited() {
        let job = Job { loops: Some(3), ..job(Rw::RandWrite, Layout::Written) };
        let mut order = AccessOrder::new(&job, 1);
        assert_eq!(std::iter::from_fn(|| order.next()).count(), 3000);
    }

    #[test]
    fn permuted_numbers_have_no_stride() {
        let permutation = Permutation::new(1 << 16, 0);
        let steps: BTreeSet<u64> =
            (0..1000).map(|number| permutation.at(number + 1).wrapping_sub(permutation.at(number))).collect();
        assert!(steps.len() > 900, "{}", steps.len());
    }

    #[test]
    fn every_count_is_permuted() {
        for count in 1..200 {
            let permutation = Permutation::new(count, count);
            let all: BTreeSet<u64> = (0..count).map(|number| permutation.at(number)).collect();
            assert!(all.into_iter().eq(0..count));
        }
    }

    #[test]
    fn lengths_and_kinds_are_mixed() {
        let mut job = job(Rw::RandMixed, Layout::Written);
        job.size = 1000 * (16 << 10);
        job.block = BlockSize { min: 4096, max: 16 << 10 };
        job.align = 16 << 10;
        job.read_percent = 30;
        let mut order = AccessOrder::new(&job, 1);
        let ios: Vec<Io> = (0..1000).filter_map(|_| order.next()).collect();
        let lens: BTreeSet<u64> = ios.iter().map(|io| io.len).collect();
        assert!(lens.into_iter().eq([4096, 8192, 12288, 16384]));
        let reads = ios.iter().filter(|io| io.kind == Kind::Read).count();
        assert!((200..400).contains(&reads), "{reads}");
        assert!(ios.iter().all(|io| io.offset + io.len <= job.file_size()));
    }
}

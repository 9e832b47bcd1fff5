//! Committed blocks that are not yet at their home locations: the newest version of each, and the
//! transactions of the log that still need them.
//!
//! The module is responsible for the choice of the blocks of a checkpoint round, and for the number
//! of log blocks in use. It does no I/O.
//!
//! Invariant: all these versions are durable in the log. So a round may write a newer version of a
//! block than its transactions logged, but never an uncommitted one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use parext4_format::LogBlock;

use super::transaction::{Freed, FrozenBlock};

/// Limit of one write, in blocks.
const RUN: usize = 256;

/// The committed blocks that are not at their home locations, and the transactions of the log.
#[derive(Debug, Default)]
pub(super) struct PendingBlocks {
    blocks: BTreeMap<u64, Newest>,
    /// The transactions of the log, the oldest first.
    transactions: VecDeque<Logged>,
    /// Number of log blocks that the transactions occupy.
    used: u32,
    /// Blocks that a request in flight writes to their home locations.
    writing: BTreeSet<u64>,
}

/// The newest committed version of a block.
#[derive(Debug)]
struct Newest {
    frozen: FrozenBlock,
    tid: u64,
    /// The oldest transaction that needs this version, because neither that transaction's own
    /// version of the block nor a newer one is known to be durable at the home location.
    oldest: u64,
}

/// The part of the log that a transaction occupies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogSpan {
    /// Number of log blocks.
    pub len: u32,
    /// The log block after the last one.
    pub end: LogBlock,
}

/// A transaction in the log.
#[derive(Debug)]
struct Logged {
    tid: u64,
    span: LogSpan,
    /// Home locations of the transaction's blocks.
    homes: Vec<u64>,
}

/// The plan of one round, which covers all transactions up to `last_tid`.
#[derive(Debug)]
pub(super) struct RoundPlan {
    last_tid: u64,
    /// Home locations of the blocks, ascending.
    homes: Vec<u64>,
    /// Index in `homes` of the first block that no run has covered.
    next: usize,
    /// Log blocks that the round frees.
    len: u32,
    /// Log block with which the log begins after the round.
    pub start: LogBlock,
}

impl RoundPlan {
    /// Returns the number of the oldest transaction that stays in the log.
    pub(super) fn next_tid(&self) -> u64 {
        self.last_tid + 1
    }
}

/// Consecutive blocks, in the versions that the round writes.
#[derive(Debug)]
pub(super) struct WriteRun {
    pub first: u64,
    /// The blocks, each with the number of the transaction that logged this version.
    pub blocks: Vec<(FrozenBlock, u64)>,
}

impl WriteRun {
    fn numbers(&self) -> impl Iterator<Item = u64> {
        (self.first..).take(self.blocks.len())
    }
}

impl PendingBlocks {
    /// Adds a transaction that is durable in the log.
    pub(super) fn add(&mut self, tid: u64, blocks: Vec<FrozenBlock>, span: LogSpan) {
        self.used += span.len;
        let homes = blocks.iter().map(|frozen| frozen.block.number().get()).collect();
        self.transactions.push_back(Logged { tid, span, homes });
        for frozen in blocks {
            let number = frozen.block.number().get();
            let oldest = self.blocks.get(&number).map_or(tid, |newest| newest.oldest);
            self.blocks.insert(number, Newest { frozen, tid, oldest });
        }
    }

    /// Returns the number of log blocks in use.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Drops blocks that a durable transaction has freed, because their next owner may write them
    /// at once (H13).
    pub(super) fn drop_freed(&mut self, freed: &[Freed]) {
        for freed in freed {
            let gone: Vec<u64> = self.blocks.range(range(freed)).map(|(&number, _)| number).collect();
            for number in gone {
                self.blocks.remove(&number);
            }
        }
    }

    /// Returns true if a request in flight writes one of these blocks.
    pub(super) fn is_writing(&self, freed: &[Freed]) -> bool {
        !self.writing.is_empty()
            && freed.iter().any(|freed| self.writing.range(range(freed)).next().is_some())
    }

    /// Plans the next round: the oldest transactions, up to the one with which they have at least
    /// `most` blocks. Returns `None` if the log has no transactions.
    pub(super) fn plan(&self, most: usize) -> Option<RoundPlan> {
        let mut plan =
            RoundPlan { last_tid: 0, homes: Vec::new(), next: 0, len: 0, start: LogBlock::default() };
        for logged in &self.transactions {
            if plan.homes.len() >= most {
                break;
            }
            plan.homes.extend(&logged.homes);
            (plan.last_tid, plan.start) = (logged.tid, logged.span.end);
            plan.len += logged.span.len;
        }
        plan.homes.sort_unstable();
        plan.homes.dedup();
        (plan.last_tid > 0).then_some(plan)
    }

    /// Returns the next consecutive blocks of the plan that are not at their home locations, at
    /// most 256, and records that a request writes them. Returns `None` after the last.
    pub(super) fn begin_run(&mut self, plan: &mut RoundPlan) -> Option<WriteRun> {
        let mut run: Option<WriteRun> = None;
        while let Some(&number) = plan.homes.get(plan.next) {
            let needed = self.blocks.get(&number).filter(|newest| newest.oldest <= plan.last_tid);
            if let Some(newest) = needed {
                let run = run.get_or_insert_with(|| WriteRun { first: number, blocks: Vec::new() });
                if number != run.first + run.blocks.len() as u64 || run.blocks.len() == RUN {
                    break;
                }
                run.blocks.push((newest.frozen.clone(), newest.tid));
                self.writing.insert(number);
            }
            plan.next += 1;
        }
        run
    }

    /// Records that the request for `run` has completed.
    pub(super) fn end_run(&mut self, run: &WriteRun) {
        for number in run.numbers() {
            self.writing.remove(&number);
        }
    }

    /// Records that no request is in flight.
    pub(super) fn end_all(&mut self) {
        self.writing.clear();
    }

    /// Removes the blocks of `runs`, which are durable at their home locations. A block that was
    /// committed again during the round stays.
    pub(super) fn remove_written(&mut self, runs: &[WriteRun]) {
        for run in runs {
            for (number, &(_, written)) in run.numbers().zip(&run.blocks) {
                match self.blocks.get_mut(&number) {
                    Some(newest) if newest.tid == written => drop(self.blocks.remove(&number)),
                    Some(newest) => newest.oldest = newest.oldest.max(written + 1),
                    None => {}
                }
            }
        }
    }

    /// Frees the log blocks that a plan covers. The journal's superblock on the device already says
    /// that the log begins after them.
    pub(super) fn release(&mut self, plan: &RoundPlan) {
        while self.transactions.front().is_some_and(|logged| logged.tid <= plan.last_tid) {
            self.transactions.pop_front();
        }
        self.used -= plan.len;
    }
}

fn range(freed: &Freed) -> std::ops::Range<u64> {
    let start = freed.start.get();
    start..start + u64::from(freed.len)
}

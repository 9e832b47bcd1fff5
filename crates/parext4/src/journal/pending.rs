//! Committed blocks that are not at home yet: the newest version of each, and the transactions of the log that need it.
//!
//! Only durable versions are here. So a block may be written home in a newer version than a transaction needs, but
//! never in one that is not committed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::transaction::{Freed, FrozenBlock};

/// At most this many blocks in one write.
const RUN: usize = 256;

/// Committed blocks that are not at home, and the transactions that need them there.
#[derive(Debug, Default)]
pub(super) struct Pending {
    blocks: BTreeMap<u64, Newest>,
    /// The transactions of the log, the oldest first.
    transactions: VecDeque<Logged>,
    /// Log blocks of all of them.
    used: u32,
    /// Blocks that a request under way writes home.
    writing: BTreeSet<u64>,
}

/// The newest committed version of a block.
#[derive(Debug)]
struct Newest {
    frozen: FrozenBlock,
    tid: u64,
    /// The oldest transaction such that neither its version of the block nor a newer one is known to be at home.
    oldest: u64,
}

/// Where a transaction lies in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogSpan {
    /// Log blocks.
    pub len: u32,
    /// The log block after its last.
    pub end: u32,
}

#[derive(Debug)]
struct Logged {
    tid: u64,
    span: LogSpan,
    homes: Vec<u64>,
}

/// The plan of one round: all transactions up to one.
#[derive(Debug)]
pub(super) struct Plan {
    upto: u64,
    /// Ascending.
    homes: Vec<u64>,
    /// Index of the first of `homes` that has not been handled.
    next: usize,
    /// Log blocks that the round frees.
    len: u32,
    /// Where the log begins after it.
    pub start: u32,
}

impl Plan {
    /// The oldest transaction that stays in the log.
    pub(super) fn next_tid(&self) -> u64 {
        self.upto + 1
    }
}

/// Blocks that lie together, in the versions to be written.
#[derive(Debug)]
pub(super) struct Run {
    pub first: u64,
    /// Each with the transaction that it is of.
    pub blocks: Vec<(FrozenBlock, u64)>,
}

impl Run {
    fn numbers(&self) -> impl Iterator<Item = u64> {
        (self.first..).take(self.blocks.len())
    }
}

impl Pending {
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

    /// Log blocks in use.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Drops blocks that a durable transaction has freed: their next owner may write them (H13).
    pub(super) fn drop_freed(&mut self, freed: &[Freed]) {
        for freed in freed {
            let gone: Vec<u64> = self.blocks.range(range(freed)).map(|(&number, _)| number).collect();
            for number in gone {
                self.blocks.remove(&number);
            }
        }
    }

    /// Whether a request under way writes one of these blocks.
    pub(super) fn is_writing(&self, freed: &[Freed]) -> bool {
        !self.writing.is_empty()
            && freed.iter().any(|freed| self.writing.range(range(freed)).next().is_some())
    }

    /// Plans the next round: the oldest transactions, with about `most` blocks. `None` if all is at home.
    pub(super) fn plan(&self, most: usize) -> Option<Plan> {
        let mut plan = Plan { upto: 0, homes: Vec::new(), next: 0, len: 0, start: 0 };
        for logged in &self.transactions {
            if plan.homes.len() >= most {
                break;
            }
            plan.homes.extend(&logged.homes);
            (plan.upto, plan.start) = (logged.tid, logged.span.end);
            plan.len += logged.span.len;
        }
        plan.homes.sort_unstable();
        plan.homes.dedup();
        (plan.upto > 0).then_some(plan)
    }

    /// The next blocks of the plan that lie together and are not at home, which the caller writes now.
    pub(super) fn begin_run(&mut self, plan: &mut Plan) -> Option<Run> {
        let mut run: Option<Run> = None;
        while let Some(&number) = plan.homes.get(plan.next) {
            let needed = self.blocks.get(&number).filter(|newest| newest.oldest <= plan.upto);
            if let Some(newest) = needed {
                let run = run.get_or_insert_with(|| Run { first: number, blocks: Vec::new() });
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

    /// Notes that the request for `run` has completed.
    pub(super) fn end_run(&mut self, run: &Run) {
        for number in run.numbers() {
            self.writing.remove(&number);
        }
    }

    /// Notes that no request is under way any more.
    pub(super) fn end_all(&mut self) {
        self.writing.clear();
    }

    /// Removes the blocks of `runs`, which are durable at home. A block that was committed again meanwhile stays.
    pub(super) fn came_home(&mut self, runs: &[Run]) {
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

    /// Frees the part of the log that a plan covers. The journal's superblock already says, durably, that the log
    /// begins after it.
    pub(super) fn release(&mut self, plan: &Plan) {
        while self.transactions.front().is_some_and(|logged| logged.tid <= plan.upto) {
            self.transactions.pop_front();
        }
        self.used -= plan.len;
    }
}

fn range(freed: &Freed) -> std::ops::Range<u64> {
    let start = freed.start.get();
    start..start + u64::from(freed.len)
}

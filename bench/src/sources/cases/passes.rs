//! The cases of S5 that measure the cost of range locks: one pass of one thread over a file in
//! memory.

use super::{Case, EXT4, PLAIN, Scale, XFS, cached, job, row};
use crate::job::{IoEngine, Job, Layout, Rw};
use parext4::Policy;

/// Returns the cases: reads, writes, read faults and write faults.
pub fn cases(scale: Scale) -> Vec<Case> {
    let [exclusive, shared] = [Policy::Exclusive, Policy::SharedOverwrite].map(|policy| PLAIN.policy(policy));
    let runs = [exclusive, shared, PLAIN, EXT4, XFS];
    let pass = |rw, ioengine| Job {
        ioengine,
        pre_read: true,
        loops: Some(1),
        ..cached(job(scale, Layout::Written, 4096, 1, 1), rw)
    };
    [
        ("read-4k-pass", Rw::Read, IoEngine::Auto),
        ("write-4k-pass", Rw::Write, IoEngine::Auto),
        ("fault-read-4k-pass", Rw::Read, IoEngine::Mmap),
        ("fault-write-4k-pass", Rw::Write, IoEngine::Mmap),
    ]
    .map(|(case, rw, ioengine)| row("S5", case, pass(rw, ioengine), &runs))
    .into()
}

//! Names and small files: what programs do that make, look for, move and remove many of them. None of the sources is
//! about that; parext4 is shown beside the others all the same.

use std::time::Duration;

use super::{EXT4, FUSE2FS, MOUNTED, NULL, Row, Run, Scale, XFS};
use crate::bench::sources::metadata::{Chore, Names, Operation, Tree};
use crate::bench::sources::work::Work;

/// Through the same system calls on everything that can be mounted.
pub fn rows(scale: Scale) -> Vec<Row> {
    let mounted = [MOUNTED, EXT4, XFS, FUSE2FS].map(Run::per_job);
    // It has names, but no contents.
    let with_null = [&mounted[..], &[NULL.per_job()]].concat();
    let row = |case: &str, work, runs: &[Run]| Row {
        source: "metadata",
        case: case.into(),
        work,
        before: None,
        runs: runs.to_vec(),
    };
    let names = Operation::ALL.map(|operation| {
        let files = count(scale.runtime, 20_000.0, 10_000);
        let names = Names { operation, threads: 2, files, runtime: scale.runtime };
        row(operation.name(), Work::Names(names), &with_null)
    });
    let tree = |chore| Work::Tree(Tree { chore, files: count(scale.runtime, 10_000.0, 3000) });
    let trees = [row("untar", tree(Chore::Unpack), &with_null), row("git", tree(Chore::Git), &mounted)];
    names.into_iter().chain(trees).collect()
}

/// Files for a run of that time: so many `a_second`, but no more than `most`.
fn count(runtime: Duration, a_second: f64, most: u32) -> u32 {
    // Between 1 and `most`.
    (runtime.as_secs_f64() * a_second).clamp(1.0, most.into()) as u32
}

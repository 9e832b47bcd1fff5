//! Names and small files: what programs do that make, look for, move and remove many of them. None of the sources is
//! about that; parext4 is shown beside the others all the same.

use std::time::Duration;

use super::{Case, EXT4, FUSE2FS, MOUNTED, NULL, Participant, Scale, XFS};
use crate::sources::metadata::{Names, Operation, Tree, TreeTask};
use crate::sources::workload::Workload;

const THREADS: u32 = 2;
/// Slow file systems do not come to all names in this time. What they do in less says little: it differs with the number
/// of names, and they work in the background as well.
const LONGEST: Duration = Duration::from_millis(2500);

/// Through the same system calls on everything that can be mounted.
pub fn cases(scale: Scale) -> Vec<Case> {
    let mounted = [MOUNTED, EXT4, XFS, FUSE2FS].map(Participant::per_job);
    // It has names, but no contents.
    let with_null = [&mounted[..], &[NULL.per_job()]].concat();
    let row = |case: &str, work, runs: &[Participant]| Case {
        source: "metadata",
        case: case.into(),
        work,
        before: None,
        cache: None,
        runs: runs.to_vec(),
    };
    let names = Operation::ALL.map(|operation| {
        let names = Names { operation, threads: THREADS, files: scale.names / THREADS, runtime: LONGEST };
        row(operation.name(), Workload::Names(names), &with_null)
    });
    let tree = |task| Workload::Tree(Tree { task, files: scale.names / 16 });
    let trees = [row("untar", tree(TreeTask::Unpack), &with_null), row("git", tree(TreeTask::Git), &mounted)];
    names.into_iter().chain(trees).collect()
}

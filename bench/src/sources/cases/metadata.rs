//! Cases with names and small files, as in programs that create, look up, rename and remove many
//! files. No source measured them.

use std::time::Duration;

use super::{Case, EXT4, FUSE2FS, MOUNTED, NULL, Participant, Scale, XFS};
use crate::sources::metadata::{Names, Operation, Tree, TreeTask};
use crate::sources::workload::Workload;

const THREADS: u32 = 2;
/// Largest duration of a run. Slow file systems do not finish all names in this time. Shorter runs
/// would say little, because the rate depends on the number of names, and file systems also work in
/// the background.
const LONGEST: Duration = Duration::from_millis(2500);

/// Returns the cases. All file systems get the same system calls.
pub fn cases(scale: Scale) -> Vec<Case> {
    let mounted = [MOUNTED, EXT4, XFS, FUSE2FS].map(Participant::per_job);
    // The null file system has names, but no contents, so it cannot run git.
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

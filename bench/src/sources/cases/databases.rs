//! Cases with databases, as real programs on mounts. No source measured them.

use super::{Case, EXT4, FUSE2FS, MOUNTED, MOUNTED_DIRECT, MOUNTED_WRITEBACK, Participant, Scale, XFS};
use crate::sources::databases::{Database, Journal, PgTask, RocksTask, SyncCall, Task};
use crate::sources::workload::Workload;

/// Returns the cases. Rates are relative to the kernel's ext4.
pub fn cases(scale: Scale) -> Vec<Case> {
    let runs = [EXT4, XFS, MOUNTED, MOUNTED_WRITEBACK, MOUNTED_DIRECT, FUSE2FS].map(Participant::per_job);
    let commits = SyncCall::ALL.map(Task::Commit);
    let servers = PgTask::ALL.map(Task::PostgreSql);
    let sqlite = Journal::ALL.map(Task::Speedtest);
    let rocks = RocksTask::ALL.map(Task::RocksDb);
    let tasks = commits.into_iter().chain(servers).chain(sqlite).chain(rocks);
    let row = |task: Task| Case {
        source: "databases",
        case: task.name().into(),
        work: Workload::Database(Database {
            task,
            scale: (scale.names / 10_000).max(1),
            runtime: scale.runtime * 3,
        }),
        before: None,
        cache: None,
        runs: runs.to_vec(),
    };
    tasks.map(row).collect()
}

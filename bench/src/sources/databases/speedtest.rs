//! SQLite's own benchmark.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use parext4_cli::interrupt;

use crate::outcome::Outcome;
use crate::sources::command::{command, run as run_command};

/// SQLite's journal mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    Wal,
    Delete,
}

impl Journal {
    pub const ALL: [Self; 2] = [Self::Wal, Self::Delete];

    pub fn name(self) -> &'static str {
        match self {
            Self::Wal => "sqlite-wal",
            Self::Delete => "sqlite-delete",
        }
    }

    fn mode(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::Delete => "delete",
        }
    }
}

/// Runs speedtest1 on a database in `root`. Most of its transactions are in files, of a cache of 4
/// MiB. Each of its tests counts as one operation.
pub fn run(journal: Journal, scale: u32, root: &Path) -> Result<Outcome> {
    interrupt::check()?;
    let size = (20 * scale).to_string();
    let arguments =
        ["--journal", journal.mode(), "--cachesize", "1000", "--size", &size, "--testset", "main", "db"];
    let mut program = command("speedtest1", arguments);
    program.current_dir(root);
    let start = Instant::now();
    let output = run_command(program)?;
    let elapsed = start.elapsed();
    // A line such as " 100 - 50000 INSERTs into table with no index...................... 0.050s".
    let is_test = |line: &&str| line.trim_end().ends_with('s') && line.contains(" - ");
    let tests = output.lines().filter(is_test).count();
    ensure!(tests > 0, "speedtest1 has printed no test: {}", output.trim());
    Outcome::of_program(tests as u64, elapsed)
}

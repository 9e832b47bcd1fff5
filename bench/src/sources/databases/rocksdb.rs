//! RocksDB's own benchmark.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use parext4_cli::interrupt;

use crate::outcome::Outcome;
use crate::sources::command::{command, run as run_command};

/// What db_bench does. Keys have 16 bytes and values 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RocksTask {
    /// Two threads write random keys, each write durable.
    FillSync,
    /// Two threads write random keys without waiting for the device; write-back and compaction are
    /// included.
    FillRandom,
}

impl RocksTask {
    pub const ALL: [Self; 2] = [Self::FillSync, Self::FillRandom];

    pub fn name(self) -> &'static str {
        match self {
            Self::FillSync => "rocksdb-fillsync",
            Self::FillRandom => "rocksdb-fillrandom",
        }
    }

    /// The benchmarks of db_bench.
    fn benchmarks(self) -> &'static str {
        match self {
            Self::FillSync => "fillsync",
            Self::FillRandom => "fillrandom,compact",
        }
    }

    /// Operations of each thread.
    fn operations(self, scale: u32) -> u32 {
        match self {
            Self::FillSync => 1000 * scale,
            Self::FillRandom => 20_000 * scale,
        }
    }
}

/// Runs db_bench on a database in `root`.
pub fn run(task: RocksTask, scale: u32, root: &Path) -> Result<Outcome> {
    interrupt::check()?;
    let database = root.join("db");
    let arguments = [
        format!("--db={}", database.display()),
        format!("--benchmarks={}", task.benchmarks()),
        format!("--num={}", task.operations(scale)),
        "--threads=2".into(),
        "--value_size=400".into(),
        "--write_buffer_size=4194304".into(),
        "--compression_type=none".into(),
        "--seed=1".into(),
    ];
    let output = run_command(command("db_bench", arguments))?;
    let lines: Vec<Line> = output.lines().filter_map(Line::parse).collect();
    let first =
        lines.first().with_context(|| format!("db_bench has printed no result: {}", output.trim()))?;
    let seconds = lines.iter().map(|line| line.seconds).sum();
    Outcome::of_program(first.operations, Duration::try_from_secs_f64(seconds)?)
}

/// A result of db_bench.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    seconds: f64,
    operations: u64,
}

impl Line {
    /// Parses a line such as
    /// "fillsync : 57.046 micros/op 34987 ops/sec 0.057 seconds 2000 operations; 14.0 MB/s".
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split([' ', ';']).collect();
        let before = |unit: &str| words.iter().position(|&word| word == unit)?.checked_sub(1);
        Some(Self {
            seconds: words[before("seconds")?].parse().ok()?,
            operations: words[before("operations")?].parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn a_result_is_parsed() {
        let line =
            "fillsync     :      57.046 micros/op 34987 ops/sec 0.057 seconds 2000 operations;   14.0 MB/s";
        assert_eq!(Line::parse(line), Some(Line { seconds: 0.057, operations: 2000 }));
        assert_eq!(Line::parse("DB path: [/mnt/db]"), None);
        assert_eq!(Line::parse("seconds operations"), None);
    }
}

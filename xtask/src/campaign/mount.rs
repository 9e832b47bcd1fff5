//! The tests of mounts that can go on for long: more of the same than each run of the tests makes.

use anyhow::Result;

use crate::cargo_test;
use crate::report::Report;
use crate::workspace::cargo;

/// Random operations on one file, `ops` in each of nine configurations.
pub fn fsx(ops: u64, report: &mut Report) -> Result<()> {
    run("mount_fsx", "", ("PAREXT4_FSX_OPS", ops), report)
}

/// Random operations on names by eight threads, `ops` by each, in each of three configurations.
pub fn names(ops: u64, report: &mut Report) -> Result<()> {
    run("mount", "trees_of_many_threads", ("PAREXT4_NAMES_OPS", ops), report)
}

/// Handles of every kind at once, `seconds` in each test whose name contains `only`.
pub fn mixed(seconds: u64, only: &str, report: &mut Report) -> Result<()> {
    run("mount_mixed", only, ("PAREXT4_MIXED_SECONDS", seconds), report)
}

/// The server killed under load, `rounds` times.
pub fn kill(rounds: u64, report: &mut Report) -> Result<()> {
    run("mount", "synced_data_survives", ("PAREXT4_KILL_ROUNDS", rounds), report)
}

/// Runs the tests of a target whose names contain `only`, with a number in the environment.
fn run(target: &str, only: &str, (variable, number): (&str, u64), report: &mut Report) -> Result<()> {
    let words =
        format!("test -p parext4-cli --profile stress --no-fail-fast --test {target} {only} -- --nocapture");
    cargo_test::run(cargo(&words).env(variable, number.to_string()), target, report)
}

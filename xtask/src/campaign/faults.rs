//! The fault sweep: workloads over all operations, repeated with each request of the device
//! failing, with little memory, and with each number of blocks and inodes that does not suffice.
//! The workloads are tests; `testkit::fault_sweep` has what they assert.

use anyhow::{Result, ensure};

use crate::cargo_test;
use crate::command::Cmd;
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace::cargo;

/// The part of the tests' names that selects all workloads, and no other test.
pub const ALL: &str = "sweep::";

/// What fails.
#[derive(clap::Args)]
pub struct Args {
    /// Every fault, not a sample
    #[arg(long)]
    long: bool,
    /// Only workloads whose names contain this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Only this fault of the workload, such as writes:17:once, as a failure prints it
    #[arg(long, value_name = "FAULT", requires = "only")]
    point: Option<String>,
    /// Seed of the sample, as the test of a workload prints it; random if not given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// The test programs with workloads.
const ENGINE: &str = "--test crash";
const COMMANDS: &str = "--test network";

/// Runs the workloads of the engine with a sample of the faults. The workloads of commands run with
/// the other tests of commands.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    cargo_test::run(cargo_test::scaled(tests(ENGINE, ALL), scope), "faults", report)
}

fn tests(programs: &str, only: &str) -> Cmd {
    let words = format!("test --workspace --profile stress --no-fail-fast {programs} {only} -- --nocapture");
    cargo(&words)
}

/// Runs the workloads and faults that the arguments select.
pub fn run_some(args: &Args, report: &mut Report) -> Result<()> {
    let only = args.only.as_deref().unwrap_or(ALL);
    ensure!(!only.contains(' '), "--only {only}: a name has no spaces");
    let mut command = tests(&format!("{ENGINE} {COMMANDS}"), only);
    if let Some(seed) = args.seed {
        command = command.env("PAREXT4_STRESS_SEED", seed.to_string());
    }
    if args.long {
        command = command.env("PAREXT4_STRESS_ALL", "1");
    }
    if let Some(point) = &args.point {
        command = command.env("PAREXT4_FAULT", point);
    }
    cargo_test::run(command, "faults", report)
}

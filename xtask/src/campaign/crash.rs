//! The crash sweep: power cuts during short sequences of operations and histories of threads.
//! docs/testing.md describes it.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::command::cmd;
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace::{build_programs, target};

/// The extent of the sweep.
#[derive(clap::Args)]
pub struct Args {
    /// About this number of states; all sequences of one and two operations, and more, without it
    #[arg(long)]
    states: Option<u64>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End after this number of minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// Repeat one case, as a failure names it
    #[arg(long, value_name = "CASE")]
    case: Option<String>,
}

/// Times of the parts of `cargo xtask test`: of the quick one, and of the one with `--full`.
const TIMES: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(30));

/// Runs the part of `cargo xtask test`: another one each time.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let seed = fastrand::u64(..1 << 32);
    let minutes = scope.quick_or(TIMES.0, TIMES.1).as_secs_f64() / 60.0;
    sweep(&format!("--states 40000 --seed {seed} --minutes {minutes}"), report)
}

/// Runs the sweep, or repeats a case of it.
pub fn run_some(args: &Args, report: &mut Report) -> Result<()> {
    let states = args.states.map(|states| format!(" --states {states}"));
    let minutes = args.minutes.map(|minutes| format!(" --minutes {minutes}"));
    let case = args.case.as_ref().map(|case| format!(" --case {case}"));
    let further: String = [states, minutes, case].into_iter().flatten().collect();
    sweep(&format!("--seed {}{further}", args.seed), report)
}

fn sweep(words: &str, report: &mut Report) -> Result<()> {
    let programs = build_programs()?;
    let mut skipped = Vec::new();
    report.case(&format!("sweep {words}"), || {
        let keep = target().join("crash-sweep");
        let sweep = cmd(programs.join("crash-sweep")).args(words).arg("--keep").arg(keep);
        let status = sweep.each_line(|line| {
            println!("  {line}");
            skipped.extend(line.strip_prefix("SKIPPED: ").map(str::to_owned));
        })?;
        ensure!(status.success(), "a state is wrong; the lines above repeat it");
        Ok(())
    });
    skipped.iter().for_each(|why| report.skip("crash", why));
    Ok(())
}

//! The mutation run: guards, orderings and error paths of the range lock and of parts of the engine
//! are broken one at a time, and the tests must notice. The crate `mutants` finds and runs the
//! mutants; docs/testing.md describes it.

use anyhow::{Context, Result, ensure};

use crate::command::cmd;
use crate::report::Report;
use crate::workspace::{cargo, target};

/// The mutants that run.
#[derive(clap::Args)]
pub struct Args {
    /// Only areas whose names contain this
    #[arg(long, value_name = "AREA")]
    only: Option<String>,
    /// Show the mutants and end
    #[arg(long)]
    list: bool,
    /// Run only this mutant, and show the output of its tests
    #[arg(long, value_name = "NUMBER")]
    mutant: Option<u32>,
    /// Run only the mutants that the last run missed
    #[arg(long)]
    missed: bool,
    /// Run also the mutants with an argument why no test can notice them
    #[arg(long)]
    argued: bool,
    /// Mutants that run at the same time; the number of processors without it
    #[arg(long)]
    jobs: Option<usize>,
}

/// Runs the mutants that the arguments select.
pub fn run_some(args: &Args, report: &mut Report) -> Result<()> {
    cargo("build --quiet --release -p mutants").run().context("building the campaign")?;
    report.case("mutants", || {
        let flags = [(args.list, "--list"), (args.missed, "--missed"), (args.argued, "--argued")];
        let run = cmd(target().join("release/mutants")).arg("--folder").arg(target().join("mutants"));
        let run = flags.into_iter().filter(|(is_set, _)| *is_set).fold(run, |run, (_, flag)| run.arg(flag));
        let run = run.option("--only", args.only.as_ref());
        let run = run.option("--mutant", args.mutant.map(|number| number.to_string()));
        let run = run.option("--jobs", args.jobs.map(|jobs| jobs.to_string()));
        let status = run.each_line(|line| println!("  {line}"))?;
        ensure!(status.success(), "the tests miss too many mutants; `--mutant NUMBER` repeats one");
        Ok(())
    });
    Ok(())
}

//! Mutation runs: breaks guards, orderings and error paths of chosen modules one at a time, and
//! runs the tests that must notice.
//!
//! All mutants are built at once: in a copy of the workspace, each place that is changed asks a
//! [`switch`] which variant runs. So a mutant costs a run of tests and no build.
//!
//! 1. [`walk`] finds the changes in the sources of the [`areas`], and [`catalogue`] numbers them.
//! 2. [`render`] writes each source with all its changes, and [`compile`] builds the tests and
//!    leaves out what does not compile.
//! 3. [`suite`] runs each test without a mutant, to learn which mutants it reaches.
//! 4. [`run`] runs the tests with each mutant that they reach, the fastest first, until one fails.
//! 5. [`report`] counts. A mutant that no test can notice is in the list that [`argued`] reads,
//!    with an argument.

#![forbid(unsafe_code)]

mod area_run;
mod areas;
mod argued;
mod catalogue;
mod command;
mod compile;
mod mutant;
mod operators;
mod render;
mod report;
mod run;
mod suite;
#[allow(dead_code, reason = "the mutated crates use it")]
mod switch;
mod tree;
mod walk;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use area_run::{AreaRun, Selection};
use areas::Area;
use catalogue::Catalogue;
use compile::Workshop;

/// Mutation runs
#[derive(Parser)]
struct Args {
    /// Only areas whose names contain this
    #[arg(long, value_name = "AREA", default_value = "")]
    only: String,
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
    /// The folder of the mutated tree and its build outputs
    #[arg(long, default_value = "target/mutants")]
    folder: PathBuf,
}

fn main() -> ExitCode {
    match campaign(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what the arguments select. Returns true if enough mutants are caught or argued in each
/// area.
fn campaign(args: &Args) -> Result<bool> {
    command::end_on_signals()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the workspace")?;
    let catalogue = Catalogue::read(root)?;
    let mut chosen: Vec<_> = catalogue.areas(&args.only).collect();
    if let Some(number) = args.mutant {
        chosen.retain(|(_, mutants)| mutants.iter().any(|mutant| mutant.number == number));
    }
    ensure!(!chosen.is_empty(), "no area has this name or mutant");
    if args.list {
        for (area, mutants) in chosen {
            println!("{}: {} mutants", area.name, mutants.len());
            mutants.iter().for_each(|mutant| println!("  {mutant}"));
        }
        return Ok(true);
    }
    let workshop = Workshop { root, folder: root.join(&args.folder) };
    fs::create_dir_all(&workshop.folder)?;
    let areas: Vec<&Area> = chosen.iter().map(|(area, _)| *area).collect();
    let built = workshop.build(&catalogue, &areas)?;
    let selection = match args {
        Args { mutant: Some(number), .. } => Selection::One(*number),
        Args { missed: true, .. } => Selection::Missed,
        Args { argued: true, .. } => Selection::All,
        _ => Selection::NotArgued,
    };
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let mut is_enough = true;
    for (area, mutants) in chosen {
        let run =
            AreaRun { catalogue: &catalogue, area, built: &built, folder: &workshop.folder, selection, jobs };
        is_enough &= run.run(mutants)?;
    }
    Ok(is_enough)
}

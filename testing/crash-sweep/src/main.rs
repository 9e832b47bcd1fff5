//! Runs the sweep, or repeats one case of it.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use crash_sweep::case::Case;
use crash_sweep::failure::keep_panics;
use crash_sweep::sweep::{Extent, Sweep};

/// Power cuts during short sequences of operations and histories of threads
#[derive(Parser)]
struct Args {
    /// About this number of states instead of the full sweep
    #[arg(long)]
    states: Option<u64>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End after this number of minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Keep the states that are wrong in this folder
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Repeat one case
    #[arg(long)]
    case: Option<Case>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    keep_panics();
    let time = args.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let sweep = Sweep::new(Extent { seed: args.seed, states: args.states, time, keep: args.keep });
    let passed = match args.case {
        Some(case) => sweep.repeat(case),
        None => sweep.run(),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

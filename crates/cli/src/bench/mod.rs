//! `parext4 bench`: one job on one target, in fio's words.

mod engine;
mod ground;
mod job;
mod lane;
mod one;
mod options;
mod order;
mod outcome;
mod queue_lane;
mod runner;
mod target;

use anyhow::Result;

use crate::interrupt;

/// Measure the library, the plain device, or any mounted file system
///
/// Runs one job, in the words of fio. Sizes take k, m, g; times us, ms, s.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    one: options::Args,
}

/// Runs the benchmark.
pub fn run(args: &Args) -> Result<()> {
    interrupt::install()?;
    one::run(&args.one)
}

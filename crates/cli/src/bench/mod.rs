//! `parext4 bench`: one job on one target, in fio's words; `parext4 bench sources`: the works that parext4
//! stands on, each with its before beside its after and its peers.

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
mod sources;
mod target;

use anyhow::Result;

use crate::interrupt;

/// Measure the library, the plain device, or any mounted file system
///
/// Without a subcommand, runs one job, in the words of fio. Sizes take k, m, g; times us, ms, s.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, args_override_self = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    one: options::Args,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Sources(sources::Args),
}

/// Runs the benchmark.
pub fn run(args: &Args) -> Result<()> {
    interrupt::install()?;
    match &args.command {
        Some(Command::Sources(args)) => sources::run(args),
        None => one::run(&args.one),
    }
}

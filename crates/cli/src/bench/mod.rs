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
mod step;
mod target;

use std::path::PathBuf;

use anyhow::Result;
use parext4_mount::MountOptions;

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
    /// Mount on a directory what answers at once and keeps no data, as FUSE allows no more
    #[command(hide = true)]
    Null {
        dir: PathBuf,
    },
}

/// Runs the benchmark.
pub fn run(args: &Args) -> Result<()> {
    interrupt::install()?;
    match &args.command {
        Some(Command::Sources(args)) => sources::run(args),
        Some(Command::Null { dir }) => Ok(parext4_mount::serve_null(dir, &MountOptions::default())?),
        None => one::run(&args.one),
    }
}

//! `parext4 bench`: one job on one target, in fio's words; `parext4 bench sources`: the comparison of all cases.

mod options;
mod sources;

use std::path::PathBuf;

use anyhow::Result;
use parext4_bench::{interrupt, null};

use crate::{json, output};

/// Measure the library, the plain device, or any mounted file system
///
/// Without a subcommand, runs one job, in the words of fio. Sizes take k, m, g; times us, ms, s.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, args_override_self = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    single: options::Args,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Sources(sources::Args),
    /// Mount on a directory a file system that answers at once and stores no data: the fastest that FUSE allows
    #[command(hide = true)]
    Null {
        /// The directory to mount it on
        dir: PathBuf,
    },
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    interrupt::install()?;
    match &args.command {
        Some(Command::Sources(args)) => sources::run(args),
        Some(Command::Null { dir }) => Ok(null::serve(dir)?),
        None => run_single(&args.single),
    }
}

fn run_single(args: &options::Args) -> Result<()> {
    let run = args.single_run();
    let outcome = run.measure()?;
    if args.json {
        return json::print(&run.to_json(&outcome));
    }
    output::print(|out| Ok(outcome.print(out)?))
}

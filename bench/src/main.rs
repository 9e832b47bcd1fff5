//! The program `parext4-bench`: one job on one target, in fio's words; with `sources`, the
//! comparison of parext4 with the techniques that it builds on and with other file systems.
#![forbid(unsafe_code)]

mod access_order;
mod buffers;
mod duration;
mod engine;
mod job;
mod job_files;
mod job_options;
mod lockstep;
mod null;
mod outcome;
mod queued;
mod runner;
mod single;
mod sources;
mod sources_options;
mod storage;
mod submitter;
mod target;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use parext4_cli::{interrupt, output};

/// Measure the library, the plain device, or any mounted file system
///
/// Without a subcommand, runs one job, in the words of fio. Sizes take k, m, g; times us, ms, s.
#[derive(Debug, Parser)]
#[command(name = "parext4-bench", version, args_conflicts_with_subcommands = true, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    single: job_options::Args,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Sources(sources_options::Args),
    /// Mount on a directory a file system that answers at once and stores no data: the fastest that
    /// FUSE allows
    #[command(hide = true)]
    Null {
        /// The directory to mount it on
        dir: PathBuf,
    },
}

/// Commands of parext4 that this program runs as parext4 does. `sources` starts `mount` as a
/// process of its own program, and that process starts `guard` in the same way.
const SERVER: [&str; 2] = ["mount", "guard"];

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| SERVER.iter().any(|command| first == *command)) {
        return parext4_cli::main();
    }
    parext4_cli::exit_status(run(&Cli::parse()))
}

fn run(cli: &Cli) -> Result<()> {
    interrupt::install()?;
    match &cli.command {
        Some(Command::Sources(args)) => sources_options::run(args),
        Some(Command::Null { dir }) => Ok(null::serve(dir)?),
        None => run_single(&cli.single),
    }
}

fn run_single(args: &job_options::Args) -> Result<()> {
    let run = args.single_run();
    let outcome = run.measure()?;
    output::print(|out| match args.json {
        true => Ok(writeln!(out, "{:#}", run.to_json(&outcome))?),
        false => Ok(outcome.print(out)?),
    })
}

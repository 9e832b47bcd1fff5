//! The command line of `sources`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use parext4_cli::output;

use crate::duration;
use crate::sources::{Comparison, Scale};

/// Compare parext4 with the techniques that it builds on, and with the kernel's file systems
///
/// As root, kernel ext4 and XFS take part, on a loop device over the same image or on the same
/// device. All images and mounts are removed at the end.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Measure on this block device, which is overwritten, instead of an image file
    #[arg(long, value_name = "PATH")]
    device: Option<PathBuf>,
    /// Directory for the image; a temporary directory by default
    #[arg(long, value_name = "DIR", conflicts_with = "device")]
    dir: Option<PathBuf>,
    /// Run every case once, for a very short time; the figures mean little
    #[arg(long, conflicts_with_all = ["runs", "seconds"])]
    quick: bool,
    /// Number of rounds; the report has the medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Seconds of each run; cases with names run for at most 2.5 seconds
    #[arg(long, default_value = "1.5", value_parser = duration::parse)]
    seconds: Duration,
    /// Only these sources, or cases whose name contains this: S1,append
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Where to write results.json, results.svg and results.png
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    out: PathBuf,
    /// Print the cases and exit
    #[arg(long)]
    list: bool,
    /// Overwrite a device that holds a file system or partition table
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let (rounds, scale) = match args.quick {
        true => (1, Scale::QUICK),
        false => (args.runs, Scale::full(args.seconds)),
    };
    let comparison = Comparison {
        device: args.device.clone(),
        dir: args.dir.clone(),
        force: args.force,
        only: args.only.clone(),
        scale,
        rounds,
        out: args.out.clone(),
    };
    let mut out = output::by_line();
    if args.list { comparison.list(&mut out) } else { comparison.run(&mut out) }
}

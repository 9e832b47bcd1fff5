//! `parext4 bench sources`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use parext4_bench::duration;
use parext4_bench::sources::{Comparison, Scale};

/// Compare the works that parext4 stands on, each with its before, and with the kernel's file systems
///
/// As root, kernel ext4 and XFS take part, on a loop device over the same image or on the same device.
/// Everything that is made is removed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Measure on this block device, which is overwritten, instead of on an image file
    #[arg(long, value_name = "PATH")]
    device: Option<PathBuf>,
    /// Where to make the image; a temporary directory if not given
    #[arg(long, value_name = "DIR", conflicts_with = "device")]
    dir: Option<PathBuf>,
    /// A short run that shows that all works; its figures mean little
    #[arg(long, conflicts_with_all = ["runs", "seconds"])]
    quick: bool,
    /// Rounds; the medians are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Seconds of one run; names have 2.5
    #[arg(long, default_value = "1.5", value_parser = duration::parse)]
    seconds: Duration,
    /// Only these sources, or cases whose name contains this: S1,append
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Where to write results.json, results.svg and results.png
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    out: PathBuf,
    /// Show the cases and end
    #[arg(long)]
    list: bool,
    /// Write over what the device holds
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
    if args.list { comparison.list() } else { comparison.run() }
}

//! `demo`: shows on this machine that threads inside one file do not queue, and that nothing breaks by it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use parext4_bench::demo::Demo;
use parext4_bench::interrupt;

use crate::policy::PolicyArgs;
use crate::size;

/// Show one file written by 8 threads at once beside a file for each thread
///
/// Makes a volume in a temporary file, measures, reads every block back, has e2fsck check the volume if it is
/// installed, and leaves nothing behind. Needs no root.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Make the image here instead of in a temporary directory
    #[arg(long, value_name = "PATH")]
    image: Option<PathBuf>,
    /// Do not remove the image
    #[arg(long)]
    keep: bool,
    /// Size of the image; less by default if the disk is nearly full
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
    /// About how long to measure; it takes longer where the least work takes longer
    #[arg(long, value_name = "N", default_value_t = 12)]
    seconds: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    interrupt::install()?;
    let demo = Demo {
        image: args.image.clone(),
        keep: args.keep,
        size: args.size,
        time: Duration::from_secs(args.seconds),
        json: args.json,
        options: args.policy.options(),
    };
    demo.run()
}

//! `parext4 demo`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use parext4_bench::demo::Demo;
use parext4_bench::interrupt;

use crate::policy::PolicyArgs;
use crate::{output, size};

/// Compare 8 threads that write one file with 8 threads that write a file each
///
/// Makes a volume in a temporary file, measures, reads every block back, and checks the volume with e2fsck if it is
/// installed. Removes the file at the end. Needs no root.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Make the image here instead of in a temporary directory
    #[arg(long, value_name = "PATH")]
    image: Option<PathBuf>,
    /// Do not remove the image
    #[arg(long)]
    keep: bool,
    /// Size of the image; 1.5 GiB by default, less if the disk is nearly full
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
    /// Approximate duration of the measurement; a slow disk takes longer
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
    demo.run(&mut output::by_line())
}

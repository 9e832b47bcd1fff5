//! `demo`: shows on this machine that threads inside one file do not queue, and that nothing breaks by it.

mod check;
mod lane;
mod measure;
mod pattern;
mod place;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parext4::{FileDevice, FileOptions, MkfsOptions, Volume};

use crate::policy::PolicyArgs;
use crate::{interrupt, size};
use lane::Lane;
use measure::Measured;
use place::Place;
use report::Report;

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

/// Threads, whatever the number of cores: they mostly wait for the disk.
pub const THREADS: usize = 8;
/// Bytes of one write.
pub const BLOCK: usize = 4096;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    interrupt::install()?;
    let place = Place::new(args.image.as_deref(), args.size, args.keep)?;
    let started = Instant::now();
    let (measured, lanes) = measure_on(&place, Duration::from_secs(args.seconds), args.policy)?;
    let checked = check::check(place.image(), &lanes, place.is_direct())?;
    let policy = args.policy.policy;
    let report = Report { measured, checked, place: &place, policy, took: started.elapsed() };
    if args.json {
        report.print_json()?
    } else {
        report.print()?
    }
    if !report.checked.is_clean() {
        bail!("the volume is wrong: {}", report.checked);
    }
    Ok(())
}

/// Makes a volume, measures on it, and closes it. Returns what was measured, and what must now be in the files.
fn measure_on(place: &Place, time: Duration, policy: PolicyArgs) -> Result<(Measured, Vec<Lane>)> {
    let device = FileDevice::open(place.image(), &FileOptions::new().direct(place.direct()))?;
    let options = MkfsOptions { block_size: Some(4096), label: "demo".into(), ..MkfsOptions::default() };
    parext4::mkfs(&device, &options)?;
    let volume = Volume::open(Arc::new(device), &policy.options())?;
    let measured = measure::measure(&volume, time);
    policy.report(&volume);
    let closed = volume.close();
    let (measured, lanes) = measured?;
    closed.context("closing the volume")?;
    Ok((measured, lanes))
}

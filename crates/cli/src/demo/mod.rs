//! `demo`: shows on this machine that threads do not wait for each other inside one file, and that
//! the data is intact.

mod check;
mod image;
mod measure;
mod pattern;
mod report;
mod writer;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parext4::{DeviceOptions, MkfsOptions, Volume};
use parext4_storage::open_device;

use crate::policy::PolicyArgs;
use crate::{interrupt, output, size};
use image::Image;
use measure::Measured;
use report::Report;
use writer::Writer;

/// Compare 8 threads that write one file with 8 threads that write a file each
///
/// Makes a volume in a temporary file, measures, reads every block back, and checks the volume with
/// e2fsck if it is installed. Removes the file at the end. Needs no root.
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

/// Number of threads. It does not depend on the number of cores, because the threads mostly wait
/// for the disk.
pub const THREADS: usize = 8;
/// Bytes of one write.
pub const BLOCK: usize = 4096;

/// Makes a volume, measures, reads every block back, runs e2fsck, and prints the report.
///
/// # Errors
/// If the image cannot be made or used, or a block or the volume is not as it should be.
pub fn run(args: &Args) -> Result<()> {
    interrupt::install()?;
    let image = Image::new(args.image.as_deref(), args.size, args.keep)?;
    let started = Instant::now();
    let (measured, writers) = measure_on(&image, args)?;
    let checked = check::check(image.path(), &writers, image.is_direct())?;
    let policy = args.policy.policy;
    let report = Report { measured, checked, image: &image, policy, took: started.elapsed() };
    let out = &mut output::by_line();
    let printed = if args.json { report.print_json(out) } else { report.print(out) };
    if !report.checked.is_clean() {
        bail!("the volume is wrong: {}", report.checked);
    }
    printed
}

/// Makes a volume, measures on it, and closes it. Returns the result and the writers.
fn measure_on(image: &Image, args: &Args) -> Result<(Measured, Vec<Writer>)> {
    let device = open_device(image.path(), &DeviceOptions::new().direct(image.direct()))?;
    let options = MkfsOptions::new().block_size(4096).label("demo");
    parext4::mkfs(&*device, &options)?;
    let volume = Volume::open_device(device, &args.policy.options())?;
    let measured = measure::measure(&volume, Duration::from_secs(args.seconds));
    args.policy.report(&volume);
    let closed = volume.close();
    let (measured, writers) = measured?;
    closed.context("closing the volume")?;
    Ok((measured, writers))
}

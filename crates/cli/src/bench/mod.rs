//! `parext4 bench`: one file shared by all threads, beside a file for each, beside the bare image file.
//!
//! All cases work on one image file, in one run, in rounds that take turns; the medians are compared. Rows
//! where parext4 loses are shown like the others.

mod job;
mod plot;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use parext4::{Device, FileDevice, FileOptions, MkfsOptions, OpenOptions, Volume};

use job::{Files, Job, Target};
use report::Report;

/// Compare threads that share one file with threads that have a file each, and with the bare device.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to make the image; a temporary directory if not given. It is deleted afterwards.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where to write results.json, results.svg and results.png.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    out: PathBuf,
    /// Threads.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Rounds of every case; the medians are reported.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Seconds of one round.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// A short run that shows that all works; its figures mean little.
    #[arg(long, conflicts_with_all = ["runs", "seconds"])]
    quick: bool,
}

/// Bytes of file per thread in the cases that overwrite.
const SHARE: u64 = 32 << 20;
/// Bytes of the image.
const IMAGE: u64 = 3 << 30;

/// Runs the benchmark.
pub fn run(args: &Args) -> Result<()> {
    ensure!(args.seconds > 0.0 && args.seconds <= 60.0, "--seconds must be above 0 and at most 60");
    let (runs, seconds) = if args.quick { (1, 0.05) } else { (args.runs, args.seconds) };
    let dir = tempfile::Builder::new().prefix("parext4-bench-").tempdir_in(place(args)?)?;
    let device = make_image(&dir.path().join("bench.img"))?;
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, &OpenOptions::default())?;
    let files = Files::make(&volume, &device, args.threads, SHARE)?;

    let jobs = Job::all();
    // Hidden where stderr is no terminal.
    let bar = ProgressBar::new(u64::from(runs) * jobs.len() as u64);
    let mut report = Report::new(args.threads, runs, device.is_direct());
    for round in 0..runs {
        // Who goes first takes turns, so that a machine that slows down slows all alike.
        let turn = round as usize % jobs.len();
        for job in jobs[turn..].iter().chain(&jobs[..turn]) {
            let rate = job.run(&files, Duration::from_secs_f64(seconds))?;
            report.add(*job, rate);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    drop(files);
    volume.close()?;
    report.print();
    report.write(&args.out).with_context(|| format!("writing results to {}", args.out.display()))
}

fn place(args: &Args) -> Result<PathBuf> {
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    ensure!(dir.is_dir(), "{} is not a directory", dir.display());
    Ok(dir)
}

fn make_image(path: &std::path::Path) -> Result<Arc<FileDevice>> {
    let device = FileDevice::open(path, &FileOptions::new().create(IMAGE))?;
    // Blocks of the image that its own file system has to find first would be measured with ours.
    device.allocate().context("allocating the image file")?;
    let options = MkfsOptions { device_is_zero: true, ..MkfsOptions::default() };
    parext4::mkfs(&device, &options)?;
    Ok(Arc::new(device))
}

impl Target {
    /// The name in tables and JSON.
    fn name(self) -> &'static str {
        match self {
            Self::OneFile => "one file",
            Self::FilePerThread => "file per thread",
            Self::Raw => "raw device",
        }
    }
}

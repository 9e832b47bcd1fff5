//! `parext4 bench sources`: each of the works that parext4 stands on, its before beside its after, and the
//! peers beside both; and work with names and small files, through mounts.
//!
//! All runs of a row take turns, round by round, and who goes first rotates: whatever else the machine does
//! meets all of them. Rows in which parext4 loses are shown like the others.

mod calibrate;
mod command;
mod memory_group;
mod metadata;
mod mount;
mod place;
mod plot;
mod report;
mod rows;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use super::options::duration;
use crate::interrupt;
use place::Places;
use report::Report;
use rows::{Row, Scale};

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
    #[arg(long, default_value = "1.5", value_parser = duration)]
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

/// Runs the comparison.
pub fn run(args: &Args) -> Result<()> {
    let (runs, scale) = match args.quick {
        true => (1, Scale { size: 64 << 20, runtime: Duration::from_millis(100), names: 2000 }),
        false => (args.runs, Scale { size: 512 << 20, runtime: args.seconds, names: 50_000 }),
    };
    let mut rows = rows::all(scale);
    rows.retain(|row| row.is_wanted(&args.only));
    ensure!(!rows.is_empty(), "--only={}: there is no such source or case (--list)", args.only.join(","));
    if args.list {
        return report::list(&rows);
    }
    rows.retain(Row::has_programs);
    let places = Places::set_up(args.device.as_deref(), args.dir.as_deref(), args.force, scale, &rows)?;
    rows.iter_mut().for_each(|row| row.runs.retain(|run| places.have(row.cache, run.on)));
    rows.retain(|row| !row.runs.is_empty());
    let report = measure(&rows, &places, runs)?;
    drop(places);
    report.print()?;
    report.write(&args.out).with_context(|| format!("writing results to {}", args.out.display()))
}

/// Runs all rows in rounds.
fn measure(rows: &[Row], places: &Places, runs: u32) -> Result<Report> {
    let mut report = Report::new(rows, places);
    // Hidden where stderr is no terminal.
    let bar = ProgressBar::new(u64::from(runs) * rows.iter().map(|row| row.runs.len() as u64).sum::<u64>());
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {eta}  {msg}")?);
    for (row, nth) in rows.iter().zip(0..).filter(|(row, _)| row.before.is_some()) {
        report.set_latency(nth, places.latency(row)?);
    }
    for round in 0..runs as usize {
        for (row, nth) in rows.iter().zip(0..) {
            for turn in 0..row.runs.len() {
                let which = (turn + round) % row.runs.len();
                bar.set_message(format!("{} {}", row.case, row.label(which)));
                if !report.has_failed(nth, which) {
                    let result = places.measure(row, &row.runs[which]);
                    interrupt::check()?;
                    report.add(nth, which, result);
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(report)
}

//! The comparison of parext4 with the techniques that it builds on (the *sources*, S1 to S5),
//! before and after each of them, and with other file systems (the *peers*); also work with names
//! and small files, through mounts.
//!
//! The participants of a case run in turn, round by round, and each round starts with another
//! participant. So other work of the machine affects all of them alike. The report includes the
//! cases in which parext4 is slower.

mod calibrate;
mod cases;
mod command;
mod databases;
mod environment;
mod memory_group;
mod metadata;
mod mount;
mod plot;
mod report;
mod workload;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use parext4_cli::interrupt;

use cases::Case;
pub use cases::Scale;
use environment::Environment;
use report::Report;

/// The settings of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// A block device to overwrite. `None`: an image file.
    pub device: Option<PathBuf>,
    /// Directory for the image. `None`: a temporary directory.
    pub dir: Option<PathBuf>,
    /// Permits `device` to be overwritten although it holds a file system or partition table.
    pub force: bool,
    /// Sources or parts of case names; empty for all.
    pub only: Vec<String>,
    /// The size and duration of each run.
    pub scale: Scale,
    /// Runs of each line of the table.
    pub rounds: u32,
    /// Directory for results.json, results.svg and results.png.
    pub out: PathBuf,
}

impl Comparison {
    /// Prints the cases and the participants of each to `out`.
    ///
    /// # Errors
    /// If `only` matches no case, or `out` fails.
    pub fn list(&self, out: &mut impl Write) -> Result<()> {
        report::list(&self.cases()?, out)
    }

    /// Runs the comparison, prints the table to `out` and writes the result files.
    ///
    /// # Errors
    /// If `only` matches no case, the image or a mount cannot be made, or a run of parext4 or of
    /// the plain device failed.
    pub fn run(&self, out: &mut impl Write) -> Result<()> {
        let (mut cases, scale) = (self.cases()?, self.scale);
        cases.retain(Case::has_programs);
        let environment =
            Environment::set_up(self.device.as_deref(), self.dir.as_deref(), self.force, scale, &cases)?;
        cases.iter_mut().for_each(|row| row.runs.retain(|run| environment.have(row.cache, run.on)));
        cases.retain(|row| !row.runs.is_empty());
        let report = measure(&cases, &environment, self.rounds)?;
        drop(environment);
        let dir = self.out.display();
        let printed = report.print(out);
        write(&report, &self.out).with_context(|| format!("writing results to {dir}"))?;
        printed?;
        Ok(writeln!(out, "\nresults.json, results.svg and results.png are in {dir}")?)
    }

    fn cases(&self) -> Result<Vec<Case>> {
        let mut cases = cases::all(self.scale);
        cases.retain(|row| row.is_wanted(&self.only));
        ensure!(
            !cases.is_empty(),
            "--only={}: there is no such source or case (--list)",
            self.only.join(",")
        );
        Ok(cases)
    }
}

/// Runs all cases in rounds.
fn measure(cases: &[Case], environment: &Environment, runs: u32) -> Result<Report> {
    let mut report = Report::new(cases, environment);
    // The bar is hidden if stderr is no terminal.
    let bar = ProgressBar::new(u64::from(runs) * cases.iter().map(|row| row.runs.len() as u64).sum::<u64>());
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {eta}  {msg}")?);
    for (row, nth) in cases.iter().zip(0..).filter(|(row, _)| row.before.is_some()) {
        report.set_latency(nth, environment.latency(row)?);
    }
    for round in 0..runs as usize {
        for (row, nth) in cases.iter().zip(0..) {
            for turn in 0..row.runs.len() {
                let which = (turn + round) % row.runs.len();
                bar.set_message(format!("{} {}", row.case, row.label(which)));
                if !report.has_failed(nth, which) {
                    let result = environment.measure(row, &row.runs[which]);
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

/// Writes results.json, results.svg and results.png.
///
/// # Errors
/// If a file cannot be written, or runs of parext4 or of the plain device failed.
fn write(report: &Report, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("results.json"), format!("{:#}\n", report.to_json()))?;
    plot::draw(report, dir)?;
    let failed = report.failures();
    ensure!(failed == 0, "{failed} runs of parext4 or of the plain device failed");
    Ok(())
}

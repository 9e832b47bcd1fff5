//! The results: a table, JSON, pictures.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::job::{Case, Job, Target};
use super::plot;

/// All rates measured.
pub struct Report {
    threads: u32,
    runs: u32,
    direct: bool,
    rates: Vec<(Job, Vec<f64>)>,
}

impl Report {
    pub fn new(threads: u32, runs: u32, direct: bool) -> Self {
        let rates = Job::all().into_iter().map(|job| (job, Vec::new())).collect();
        Self { threads, runs, direct, rates }
    }

    /// Adds a round's writes per second.
    pub fn add(&mut self, job: Job, rate: f64) {
        if let Some((_, rates)) = self.rates.iter_mut().find(|(other, _)| *other == job) {
            rates.push(rate);
        }
    }

    /// The median rate of a row, if it was measured.
    pub fn median(&self, case: Case, target: Target) -> Option<f64> {
        let (_, rates) = self.rates.iter().find(|(job, _)| *job == Job { case, target })?;
        let mut rates = rates.clone();
        rates.sort_by(f64::total_cmp);
        let middle = rates.len().checked_sub(1)? / 2;
        let upper = rates.len() / 2;
        Some(f64::midpoint(rates[middle], rates[upper]))
    }

    /// One median as a share of another.
    fn ratio(&self, case: Case, of: Target, to: Target) -> Option<f64> {
        Some(self.median(case, of)? / self.median(case, to)?)
    }

    /// The heading of table and picture.
    pub fn title(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let io = if self.direct {
            "direct I/O"
        } else {
            "through the page cache: direct I/O is not possible here"
        };
        format!("{} threads on {cores} cores, {io}, medians of {} rounds", self.threads, self.runs)
    }

    pub fn print(&self) {
        println!("{}", self.title());
        println!(
            "{:<24}{:>12}{:>17}{:>13}{:>10}{:>10}",
            "writes per second", "one file", "file per thread", "raw device", "one/each", "one/raw"
        );
        for case in Case::ALL {
            let rate = |target| self.median(case, target).map_or("-".into(), |rate| format!("{rate:.0}"));
            let ratio = |to| self.ratio(case, Target::OneFile, to).map_or("-".into(), |r| format!("{r:.2}"));
            println!(
                "{:<24}{:>12}{:>17}{:>13}{:>10}{:>10}",
                case.name(),
                rate(Target::OneFile),
                rate(Target::FilePerThread),
                rate(Target::Raw),
                ratio(Target::FilePerThread),
                ratio(Target::Raw),
            );
        }
    }

    /// Writes results.json, results.svg and results.png.
    pub fn write(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("results.json"), format!("{:#}\n", self.json()))?;
        plot::draw(self, dir)?;
        println!("results.json, results.svg and results.png are in {}", dir.display());
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        let rows = self.rates.iter().map(|(job, rates)| {
            let iops = self.median(job.case, job.target).unwrap_or(0.0);
            let (target, files) = match job.target {
                Target::OneFile => ("lib", "one"),
                Target::FilePerThread => ("lib", "per-job"),
                Target::Raw => ("raw", "one"),
            };
            json!({
                "case": job.case.name(),
                "target": target,
                "policy": "range",
                "files": files,
                "threads": self.threads,
                "iops": iops,
                "mib_s": iops * job.case.write_len() as f64 / f64::from(1 << 20),
                "runs": rates.len(),
                "iops_of_each_run": rates,
            })
        });
        rows.collect()
    }
}

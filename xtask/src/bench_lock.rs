//! The cost of the range lock: buffered reads, writes and page faults by `parext4-bench`, and by
//! the same program with a lock that locks nothing.
//!
//! The jobs need no lock: threads read, or write different pages, and too little is dirty for
//! writing back to begin.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::command::cmd;
use crate::interrupt;
use crate::quantile::{median, quantile};
use crate::workspace::{self, cargo};

/// How long to measure.
#[derive(clap::Args)]
pub struct Args {
    /// A short run that shows that all works; its figures mean little
    #[arg(long, conflicts_with_all = ["runs", "millis"])]
    quick: bool,
    /// Runs of each program, in turn
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=999))]
    runs: u32,
    /// Milliseconds of each run over a cached file; a run with an empty cache makes one pass
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    millis: u32,
    /// Only jobs whose name contains this
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Where the figures go as JSON
    #[arg(long, value_name = "FILE", default_value = "bench-results/lock.json")]
    out: PathBuf,
}

/// The work of each thread.
struct Job {
    name: &'static str,
    words: &'static str,
}

const JOBS: [Job; 7] = [
    Job { name: "READ, cached", words: "--rw=read --pre-read" },
    Job { name: "WRITE, cached", words: "--rw=write" },
    Job { name: "FAULT, cached", words: "--rw=read --pre-read --ioengine=mmap" },
    Job { name: "FAULT to write, cached", words: "--rw=write --ioengine=mmap" },
    Job { name: "READ, empty cache", words: "--runtime=60s --rw=read" },
    Job { name: "WRITE, empty cache", words: "--runtime=60s --rw=write --layout=hole" },
    Job { name: "FAULT, empty cache", words: "--runtime=60s --rw=read --ioengine=mmap" },
];
const THREADS: [u32; 2] = [1, 2];

/// The cache is so large that writing back does not begin.
const COMMON: &str = "--target=mem --direct=0 --bs=4k --iodepth=1 --cache-size=4g --json";

/// The two programs.
struct Builds {
    locked: PathBuf,
    unlocked: PathBuf,
}

/// Nanoseconds of an operation in each run, as all threads together do them.
#[derive(Default)]
struct Figures {
    locked: Vec<f64>,
    unlocked: Vec<f64>,
}

/// Measures all jobs.
pub fn run(args: &Args) -> Result<()> {
    let builds = Builds::make()?;
    let (runs, millis, size) = if args.quick { (9, 50, "64m") } else { (args.runs, args.millis, "256m") };
    println!("medians of {runs} runs in turn; cost: of each pair, median and quartiles");
    println!(
        "{:<24}{:>8}{:>10}{:>10}{:>8}{:>9}",
        "4 KiB each", "threads", "with ns", "without", "ns", "cost %"
    );
    let mut lines = Vec::new();
    for job in JOBS.iter().filter(|job| job.name.contains(&args.only)) {
        for threads in THREADS {
            let words =
                format!("{COMMON} --numjobs={threads} --size={size} --runtime={millis}ms {}", job.words);
            let figures = builds.measure(&words, runs)?;
            println!("{:<24}{threads:>8}{}", job.name, figures.text());
            lines.push(figures.to_json(job, threads, &words));
        }
    }
    write(&args.out, &Value::Array(lines))
}

impl Builds {
    fn make() -> Result<Self> {
        let folder = workspace::target().join("unlocked");
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default() + " --cfg rangelock_unlocked";
        cargo("build --quiet --release -p parext4-bench")
            .env("RUSTFLAGS", flags.trim_start())
            .env("CARGO_TARGET_DIR", &folder)
            .run()
            .context("building parext4-bench without the lock")?;
        Ok(Self { locked: workspace::build_bench()?, unlocked: folder.join("release/parext4-bench") })
    }

    fn measure(&self, words: &str, runs: u32) -> Result<Figures> {
        let mut figures = Figures::default();
        for round in 0..runs {
            let mut both = [(&self.locked, &mut figures.locked), (&self.unlocked, &mut figures.unlocked)];
            // The programs alternate in going first.
            if round % 2 == 1 {
                both.reverse();
            }
            for (binary, figures) in both {
                interrupt::check()?;
                figures.push(nanoseconds(binary, words)?);
            }
        }
        Ok(figures)
    }
}

/// One run.
fn nanoseconds(binary: &Path, words: &str) -> Result<f64> {
    let command = cmd(binary).args(words);
    let line = command.line().to_owned();
    let report: Value = serde_json::from_str(&command.run()?).with_context(|| line.clone())?;
    let rate = report["iops"].as_f64().with_context(|| format!("`{line}` names no rate"))?;
    Ok(1e9 / rate)
}

impl Figures {
    /// The time that the lock adds, in percent: first quartile, median and third quartile of the
    /// pairs.
    fn cost(&self) -> [f64; 3] {
        let pairs = self.locked.iter().zip(&self.unlocked);
        let costs: Vec<f64> = pairs.map(|(with, without)| (with / without - 1.0) * 100.0).collect();
        [0.25, 0.5, 0.75].map(|part| quantile(&costs, part))
    }

    fn text(&self) -> String {
        let (with, without) = (median(&self.locked), median(&self.unlocked));
        let [low, middle, high] = self.cost();
        let nanoseconds = format!("{with:>10.1}{without:>10.1}{:>8.1}", with - without);
        format!("{nanoseconds}{middle:>9.2}  ({low:.2} to {high:.2})")
    }

    fn to_json(&self, job: &Job, threads: u32, words: &str) -> Value {
        let [low, middle, high] = self.cost();
        json!({
            "source": "S5",
            "case": job.name,
            "threads": threads,
            "job": words,
            "ns_with": median(&self.locked),
            "ns_without": median(&self.unlocked),
            "cost_percent": middle,
            "cost_percent_quartiles": [low, high],
            "runs": self.locked.len(),
            "ns_of_each_run_with": self.locked,
            "ns_of_each_run_without": self.unlocked,
        })
    }
}

fn write(path: &Path, value: &Value) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, format!("{value:#}\n")).with_context(|| path.display().to_string())?;
    println!("figures as JSON: {}", path.display());
    Ok(())
}

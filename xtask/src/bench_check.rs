//! `parext4-bench` beside fio: the same job by two programs on one mount, so that what the
//! benchmark itself costs shows.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::{Cmd, cmd};
use crate::kernel_mount::Mount;
use crate::quantile::median;
use crate::testbed::{TestBed, remove};
use crate::{debian, image, interrupt};

/// How long to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each program, in turn
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

/// A job in the words that both programs have in common, and fio's name for how it is submitted.
struct Job {
    name: &'static str,
    words: &'static str,
    engine: &'static str,
}

const JOBS: [Job; 2] = [
    Job {
        name: "random overwrites of 4 KiB, 10 jobs x 10",
        words: "--rw=randwrite --bs=4k --numjobs=10 --iodepth=10 --direct=1 --size=512m",
        engine: "io_uring",
    },
    Job {
        name: "random overwrites of 4 KiB, 8 threads that wait for each",
        words: "--rw=randwrite --bs=4k --numjobs=8 --iodepth=1 --direct=1 --size=512m",
        engine: "psync",
    },
];

const IMAGE_SIZE: u64 = 2 << 30;
/// The medians may differ by this part.
const TOLERANCE: f64 = 0.1;

/// Compares all jobs; returns whether all agree.
pub fn run(args: &Args) -> Result<bool> {
    debian::check_kernel_mounts()?;
    let bed = TestBed::release()?;
    let image = bed.path("image");
    // What lies under the image has no first writes left.
    cmd("dd")
        .args("if=/dev/urandom bs=1M oflag=direct")
        .arg(format!("count={}", IMAGE_SIZE >> 20))
        .arg(format!("of={}", image.display()))
        .run()?;
    image::mke2fs_on(&image, "-E nodiscard,lazy_itable_init=0,lazy_journal_init=0")?;
    let mount = Mount::new(&image, &bed.path("mount"), "rw")?;
    let mut all_agree = true;
    for job in &JOBS {
        all_agree &= compare(&bed, mount.dir(), job, args)?;
    }
    mount.unmount()?;
    Ok(all_agree)
}

/// Runs a job by both programs in turn, prints the medians, and returns whether they agree.
fn compare(bed: &TestBed, dir: &Path, job: &Job, args: &Args) -> Result<bool> {
    let (mut ours, mut fios) = (Vec::new(), Vec::new());
    for round in 0..args.runs {
        interrupt::check()?;
        // The programs alternate in going first.
        if round % 2 == 0 {
            ours.push(by_parext4(bed, dir, job, args)?);
            fios.push(by_fio(dir, job, args)?);
        } else {
            fios.push(by_fio(dir, job, args)?);
            ours.push(by_parext4(bed, dir, job, args)?);
        }
    }
    // Of the two runs next to each other, so that a machine that slows down slows both.
    let ratios: Vec<f64> = ours.iter().zip(&fios).map(|(ours, fios)| ours / fios).collect();
    let [ratio, ours, fios] = [ratios, ours, fios].map(|values| median(&values));
    let agree = (ratio - 1.0).abs() <= TOLERANCE;
    println!("{}, medians of {} runs:", job.name, args.runs);
    println!("  parext4-bench {ours:.0} IOPS, fio {fios:.0} IOPS, median of the ratios {ratio:.3}");
    println!("  {} within {:.0} %", if agree { "agree" } else { "do NOT agree" }, TOLERANCE * 100.0);
    Ok(agree)
}

fn by_parext4(bed: &TestBed, dir: &Path, job: &Job, args: &Args) -> Result<f64> {
    let report = bed
        .bench()
        .args(job.words)
        .arg(format!("--runtime={}s", args.seconds))
        .arg(format!("--target=dir:{}", dir.display()));
    rate(report, |report| &report["iops"])
}

fn by_fio(dir: &Path, job: &Job, args: &Args) -> Result<f64> {
    // A new file for each run, all written, as parext4 makes it: a disk may be slower after much
    // was written.
    let file = dir.join("fio");
    remove(&file)?;
    let report = cmd("fio")
        .args("--name=check --overwrite=1 --thread --group_reporting --time_based --output-format=json")
        .args(job.words)
        .arg(format!("--ioengine={}", job.engine))
        .arg(format!("--runtime={}", args.seconds))
        .arg(format!("--filename={}", file.display()));
    rate(report, |report| &report["jobs"][0]["write"]["iops"])
}

/// The operations a second in a report in JSON.
fn rate(command: Cmd, place: impl Fn(&Value) -> &Value) -> Result<f64> {
    let line = command.line().to_owned();
    let report: Value = serde_json::from_str(&command.run()?).with_context(|| line.clone())?;
    place(&report).as_f64().with_context(|| format!("`{line}` names no rate"))
}

//! The fuzz targets of the folder `fuzz`, one after another. Each begins with the inputs in `fuzz/inputs`, and adds inputs that reach new
//! code to `fuzz/corpus`; an input that fails is kept in `fuzz/artifacts`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use crate::command::cmd;
use crate::nightly::{self, TARGET, nightly};
use crate::report::Report;
use crate::workspace;

/// The targets, with the longest time of one input in seconds.
const TARGETS: [(&str, u32); 6] = [
    ("image", 10),
    ("journal", 10),
    ("sequence", 60),
    ("range_lock", 5),
    ("requests", 60),
    ("arguments", 20),
];
/// Limits of each target: the largest allocation, and all memory, most of which the sound images use.
const LIMITS: &str = "-malloc_limit_mb=96 -rss_limit_mb=6144 -print_final_stats=1";
/// What libFuzzer prints before its figures.
const STAT: &str = "stat::";

/// What to fuzz.
#[derive(clap::Args)]
pub struct Args {
    /// Minutes of each target
    #[arg(long, default_value_t = 10)]
    minutes: u32,
    /// Only these targets: image, journal, sequence, range_lock, requests, arguments
    #[arg(long, value_name = "TARGET")]
    only: Vec<String>,
}

/// Builds and runs the targets.
pub fn run_some(args: &Args, report: &mut Report) -> Result<()> {
    let known = |name: &String| TARGETS.iter().any(|(target, _)| target == name);
    ensure!(
        args.only.iter().all(known),
        "there are the targets {}",
        TARGETS.map(|(name, _)| name).join(", ")
    );
    if let Some(missing) = missing()? {
        bail!("the fuzz targets need {missing}");
    }
    let folder = workspace::root().join("fuzz");
    nightly("cargo fuzz build --fuzz-dir . --sanitizer none").dir(&folder).run()?;
    let chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    for (name, timeout) in TARGETS.into_iter().filter(|(name, _)| chosen(name)) {
        report.case(name, || target(&folder, name, timeout, 60 * args.minutes));
    }
    Ok(())
}

/// Returns what the machine lacks.
fn missing() -> Result<Option<&'static str>> {
    if nightly::sysroot()?.is_none() {
        return Ok(Some("a nightly toolchain (rustup toolchain install nightly)"));
    }
    if cmd("cargo-fuzz").args("fuzz --version").output().is_err() {
        return Ok(Some("cargo-fuzz (cargo install cargo-fuzz)"));
    }
    if cmd("mke2fs").args("-V").output().is_err() {
        return Ok(Some("mke2fs (e2fsprogs)"));
    }
    Ok(None)
}

/// Runs one target for some seconds.
fn target(folder: &Path, name: &str, timeout: u32, seconds: u32) -> Result<()> {
    let place = |kind: &str| -> Result<PathBuf> {
        let place = folder.join(kind).join(name);
        fs::create_dir_all(&place)?;
        Ok(place)
    };
    let (corpus, inputs, artifacts) = (place("corpus")?, place("inputs")?, place("artifacts")?);
    let output = cmd(folder.join("target").join(TARGET).join("release").join(name))
        .arg(corpus)
        .arg(inputs)
        .args(LIMITS)
        .arg(format!("-timeout={timeout}"))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .dir(folder)
        .output()?;
    let stats = output.text.lines().filter_map(|line| line.strip_prefix(STAT));
    stats.for_each(|stat| println!("  {name}: {stat}"));
    if !output.status.success() {
        let lines: Vec<_> = output.text.lines().collect();
        let end = lines[lines.len().saturating_sub(60)..].join("\n");
        bail!("{}; the input is in {}\n{end}", output.status, artifacts.display());
    }
    Ok(())
}

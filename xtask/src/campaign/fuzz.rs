//! The fuzz targets of the folder `fuzz`, one after another. Each begins with the inputs in
//! `fuzz/inputs`, and adds inputs that reach new code to `fuzz/corpus`; an input that fails is kept
//! in `fuzz/artifacts`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::command::cmd;
use crate::coverage::{Coverage, Floor, executables};
use crate::nightly::{self, TARGET, nightly};
use crate::report::Report;
use crate::workspace::{self, cargo};

/// The targets, with the longest time of one input in seconds.
const TARGETS: [(&str, u32); 6] = [
    ("image", 10),
    ("journal", 10),
    ("sequence", 60),
    ("range_lock", 5),
    ("requests", 60),
    ("arguments", 20),
];
/// Limits of each target: the largest allocation, and all memory, most of which the sound images
/// use.
const LIMITS: &str = "-malloc_limit_mb=96 -rss_limit_mb=6144 -print_final_stats=1";
/// Inputs that one process runs to count lines.
const INPUTS: usize = 500;
/// Percent of the lines of each of these modules that the inputs of the target `image` run.
const FLOORS: &[Floor] = &[
    Floor { module: "extent_map", percent: 85.0 },
    Floor { module: "format", percent: 85.0 },
    Floor { module: "journal", percent: 85.0 },
    Floor { module: "namespace", percent: 85.0 },
    Floor { module: "xattr", percent: 85.0 },
];
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
    /// Build with AddressSanitizer, which makes each input several times slower
    #[arg(long)]
    asan: bool,
    /// Run each input of the corpus once, and show the lines of each module that ran
    #[arg(long)]
    coverage: bool,
}

/// Builds and runs the targets.
pub fn run_some(args: &Args, report: &mut Report) -> Result<()> {
    let known = |name: &String| TARGETS.iter().any(|(target, _)| target == name);
    ensure!(
        args.only.iter().all(known),
        "there are the targets {}",
        TARGETS.map(|(name, _)| name).join(", ")
    );
    if let Some(missing) = missing() {
        bail!("the fuzz targets need {missing}");
    }
    let folder = workspace::root().join("fuzz");
    let chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    if args.coverage {
        return coverage(&folder, chosen, report);
    }
    let (sanitizer, build) = if args.asan { ("address", "target/asan") } else { ("none", "target") };
    nightly("cargo fuzz build --fuzz-dir . --sanitizer")
        .arg(sanitizer)
        .args("--target-dir")
        .arg(build)
        .dir(&folder)
        .run()?;
    for (name, timeout) in TARGETS.into_iter().filter(|(name, _)| chosen(name)) {
        let program = folder.join(build).join(TARGET).join("release").join(name);
        report.case(name, || target(&folder, &program, name, timeout, 60 * args.minutes));
    }
    Ok(())
}

/// Returns what the machine lacks.
fn missing() -> Option<&'static str> {
    if nightly::sysroot().is_err() {
        return Some("a nightly toolchain (rustup toolchain install nightly)");
    }
    if cmd("cargo-fuzz").args("fuzz --version").output().is_err() {
        return Some("cargo-fuzz (cargo install cargo-fuzz)");
    }
    if cmd("mke2fs").args("-V").output().is_err() {
        return Some("mke2fs (e2fsprogs)");
    }
    None
}

/// Runs each input of the chosen targets once, and prints the coverage. The coverage by the target
/// `image` alone has floors.
fn coverage(folder: &Path, chosen: impl Fn(&str) -> bool, report: &mut Report) -> Result<()> {
    let coverage = Coverage::new("fuzz")?;
    let build = cargo("build --release --bins --message-format=json").dir(folder);
    let programs = executables(coverage.build(build, "--cfg fuzzing"))?;
    let mut ran = Vec::new();
    for (name, _) in TARGETS.into_iter().filter(|(name, _)| chosen(name)) {
        let program =
            programs.iter().find(|program| program.ends_with(name)).context("a target is not built")?;
        report.case(name, || {
            inputs(folder, name)?.chunks(INPUTS).try_for_each(|inputs| {
                let command = coverage.run(cmd(program)).args(LIMITS).dir(folder);
                inputs.iter().fold(command, |command, input| command.arg(input)).run().map(drop)
            })
        });
        ran.push(program.clone());
    }
    let is_image = ran.len() == 1 && chosen("image");
    coverage.report(&ran, if is_image { FLOORS } else { &[] }, report)
}

/// Returns the files of the corpus of a target, and of its inputs in the repository.
fn inputs(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let mut inputs = Vec::new();
    for kind in ["corpus", "inputs"] {
        for entry in fs::read_dir(place(folder, kind, name)?)? {
            inputs.push(entry?.path());
        }
    }
    Ok(inputs)
}

/// Returns a folder of a target, which it makes.
fn place(folder: &Path, kind: &str, name: &str) -> Result<PathBuf> {
    let place = folder.join(kind).join(name);
    fs::create_dir_all(&place)?;
    Ok(place)
}

/// Runs one target for some seconds.
fn target(folder: &Path, program: &Path, name: &str, timeout: u32, seconds: u32) -> Result<()> {
    let [corpus, inputs, artifacts] = ["corpus", "inputs", "artifacts"].map(|kind| place(folder, kind, name));
    let (corpus, inputs, artifacts) = (corpus?, inputs?, artifacts?);
    let output = cmd(program)
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

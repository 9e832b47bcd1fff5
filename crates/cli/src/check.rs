//! `check`: verifies all structures of a volume without changing it.

use std::fmt;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Error, Result, anyhow, bail};
use parext4::mmp::{self, MmpUse};
use parext4::{Device, DeviceOptions, Replayed, needs_recovery, replay_in_memory};
use parext4_check::{CheckOptions, Finding, Report, check};
use serde_json::{Value, json};

use crate::activity::{Activity, Moved};
use crate::output::{self, Output};
use crate::{error, hints, image, json};

/// The meaning of the exit status, for the help and the manual page.
const EXIT_STATUS: &str = "\
Exit status: 0 if nothing is wrong, 1 if there are findings, 8 if there is no volume, it could not be checked, or the result could not be
printed, 2 if the command line is wrong. A reader of the output that ends early does not change the status.";

/// Check all structures of a volume without changing it, like e2fsck -fn
///
/// Verifies every checksum and reference on all cores: superblock and backups, descriptors,
/// bitmaps, inodes, extent trees, directories and their indexes, attributes, link counts, usage in
/// quota files, descriptors of fs-verity, the journal's superblock. Prints a line for each finding:
/// structure, field, what is wrong, where, and the problem as which e2fsck reports it. A journal
/// that was not written back is replayed in memory first.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXIT_STATUS)]
pub struct Args {
    /// The image file, block device or URL
    image: PathBuf,
    /// Check what is on the device, without a replay of the journal
    #[arg(long)]
    no_replay: bool,
    /// Number of threads; by default four for each core, because threads wait for the device
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Largest number of findings to print; further ones are counted
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    limit: usize,
    /// Print nothing but findings
    #[arg(short, long)]
    quiet: bool,
    /// Print as JSON, with the fields that parext4-json(5) lists
    #[arg(long)]
    json: bool,
}

/// The volume was not checked, or is not clean.
#[derive(Debug)]
pub enum Failure {
    /// The number of findings, of an image.
    Findings(u64, PathBuf),
    /// The check did not run, or its result could not be printed.
    NotChecked(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Findings(1, image) => write!(f, "{}: 1 finding", image.display()),
            Self::Findings(count, image) => write!(f, "{}: {count} findings", image.display()),
            Self::NotChecked(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Findings(..) => None,
            Self::NotChecked(error) => error.chain().nth(1),
        }
    }
}

impl Failure {
    /// Returns the exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Findings(..) => 1,
            Self::NotChecked(_) => 8,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let (report, replayed) = check_image(args).map_err(Failure::NotChecked)?;
    let printed = if args.json {
        print_json(args, &report, replayed)
    } else {
        output::print(|out| print(out, args, &report, replayed))
    };
    let failed = printed.err().filter(|error| !output::has_no_reader(error));
    if report.count > 0 {
        if let Some(error) = failed {
            error::say(&format!("warning: {}", error::describe(&error)));
        }
        return Err(Failure::Findings(report.count, args.image.clone()).into());
    }
    failed.map_or(Ok(()), |error| Err(Failure::NotChecked(error).into()))
}

fn check_image(args: &Args) -> Result<(Report, Option<Replayed>)> {
    let device = image::open_device(&args.image, &DeviceOptions::new().read_only(true))?;
    image::refuse_foreign(&args.image, &*device)?;
    if let Ok(Some(state)) = mmp::read(&*device)
        && state.usage == MmpUse::InUse
    {
        let image = args.image.display();
        error::say(&format!(
            "warning: {image}: in use, or not closed ({state}); its owner may be changing what is checked"
        ));
    }
    let mut options = CheckOptions::new().limit(args.limit);
    if let Some(threads) = args.threads {
        options = options.threads(threads.get());
    }
    let (device, replayed) = if args.no_replay { (device, None) } else { replay(&args.image, device)? };
    let moved = Moved::default();
    let report = {
        let shown = moved.clone();
        let _activity = Activity::start(args.quiet, "checking", move || shown.read());
        check(&moved.counts(&*device), &options.is_replayed(replayed.is_some()))
    };
    if let Some(why) = &report.refused {
        bail!("{}: {why}", args.image.display());
    }
    Ok((report, replayed))
}

/// Replays the journal in memory if the volume needs it. A volume that cannot be opened is checked
/// as it is.
fn replay(image: &Path, device: Arc<dyn Device>) -> Result<(Arc<dyn Device>, Option<Replayed>)> {
    match needs_recovery(&*device) {
        Ok(true) => {}
        Err(error @ parext4::Error::Device { .. }) => bail!("{}: {error}", image.display()),
        // The check says what is wrong with a superblock that cannot be used.
        Ok(false) | Err(_) => return Ok((device, None)),
    }
    let (view, replayed) = replay_in_memory(device).map_err(|error| {
        anyhow!("{}: {error}; --no-replay checks the volume without its journal", image.display())
    })?;
    Ok((view, Some(replayed)))
}

fn print(out: &mut Output, args: &Args, report: &Report, replayed: Option<Replayed>) -> Result<()> {
    if let Some(replayed) = replayed.filter(|_| !args.quiet) {
        let (transactions, blocks) = (replayed.transactions, replayed.blocks);
        writeln!(out, "the journal was replayed in memory: {transactions} transactions, {blocks} blocks")?;
    }
    for finding in &report.findings {
        writeln!(out, "{finding}")?;
    }
    if let Some(needed) = report.needed {
        writeln!(out, "note: {}", hints::truncated(&args.image, needed))?;
    }
    if !args.quiet {
        for note in &report.notes {
            writeln!(out, "note: {note}")?;
        }
        let Report { inodes, directories, blocks, .. } = report;
        let image = args.image.display();
        writeln!(out, "{image}: {inodes} inodes, {directories} directories, {blocks} blocks in use")?;
    }
    Ok(())
}

fn print_json(args: &Args, report: &Report, replayed: Option<Replayed>) -> Result<()> {
    let value = json!({
        "findings": report.findings.iter().map(to_json).collect::<Vec<_>>(),
        "count": report.count,
        "notes": report.notes,
        "inodes": report.inodes,
        "directories": report.directories,
        "blocks": report.blocks,
        "replayed_transactions": replayed.map(|replayed| replayed.transactions),
    });
    json::print(&json::with_names(value, [("image", args.image.as_os_str())]))
}

fn to_json(finding: &Finding) -> Value {
    let error = &finding.error;
    json!({
        "structure": error.structure,
        "field": error.field,
        "problem": error.problem,
        "inode": error.ino.map(|ino| ino.get()),
        "block": error.block.map(|block| block.get()),
        "group": error.group.map(|group| group.get()),
        "e2fsck": finding.problem.map(|problem| problem.name),
        "e2fsck_code": finding.problem.map(|problem| format!("{:#08x}", problem.code)),
    })
}

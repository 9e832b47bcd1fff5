//! `stat`: prints the report of a mount.

mod text;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};
use parext4_mount::report::{Report, ReportError, report};

use crate::image_path::is_url;
use crate::output;

/// Show the counters of a mount: operations, locks, waits, zeroed bytes, requests, caches, commits
///
/// Counters start at 0 when the volume is mounted. Every user that may read the directory may use
/// the command.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory that the image is mounted on
    dir: PathBuf,
    /// Print them again each second, with rates, until interrupted or unmounted
    #[arg(short, long)]
    watch: bool,
    /// Print as JSON, with the fields that parext4-json(5) lists; with --watch, a line each second
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    if args.watch {
        return watch::run(&args.dir, args.json);
    }
    let report = report(&args.dir).map_err(|error| explained(&args.dir, error))?;
    print(&if args.json { format!("{:#}\n", json(&report)?) } else { text::describe(&report, None) })
}

/// Names the command that shows the volume in an image, if `dir` is one instead of a directory.
fn explained(dir: &Path, error: ReportError) -> Error {
    let is_image = || is_url(dir.as_os_str()) || dir.metadata().is_ok_and(|metadata| !metadata.is_dir());
    match error {
        ReportError::NotMounted(_) | ReportError::Failed { .. } if is_image() => {
            let image = dir.display();
            anyhow!("{image}: not a directory; \"parext4 info {image}\" shows the volume in an image")
        }
        error => error.into(),
    }
}

fn json(report: &Report) -> Result<serde_json::Value> {
    Ok(serde_json::to_value(report)?)
}

fn print(text: &str) -> Result<()> {
    output::print(|out| Ok(out.write_all(text.as_bytes())?))
}

//! `stat`: what the server of a mount does.

mod text;
mod watch;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use parext4_mount::report::{Report, report};

use crate::output;

/// Show what a mount does: operations and what they held, waits, zeros, requests, cache, commits
///
/// Counters count from the moment of mounting. Whoever may read the directory may ask.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where an image is mounted
    dir: PathBuf,
    /// Show it again each second, with rates, until interrupted or unmounted
    #[arg(short, long)]
    watch: bool,
    /// Print as JSON, with the fields that docs/json.md lists; with --watch, a line each second
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if args.watch {
        return watch::run(&args.dir, args.json);
    }
    let report = report(&args.dir)?;
    print(&if args.json { format!("{:#}\n", json(&report)?) } else { text::describe(&report, None) })
}

fn json(report: &Report) -> Result<serde_json::Value> {
    Ok(serde_json::to_value(report)?)
}

fn print(text: &str) -> Result<()> {
    let mut out = output::lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

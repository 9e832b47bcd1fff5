//! `recover`: replays the journal and deletes orphans, as opening a volume after a crash does.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;

use serde_json::json;

use crate::{image, json, output};

/// Replay the journal, and delete files that were unlinked while they were open
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image file, block device or URL
    image: PathBuf,
    /// Only replay the journal
    #[arg(long)]
    journal_only: bool,
    /// Print as JSON, with the fields that parext4-json(5) lists
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let replayed = image::replay_journal(&args.image)?;
    if !args.journal_only {
        image::write(&args.image, |_| Ok(()))?;
    }
    let (transactions, blocks) = (replayed.transactions, replayed.blocks);
    if args.json {
        let value = json!({"transactions": transactions, "blocks": blocks});
        return json::print(&json::with_names(value, [("image", args.image.as_os_str())]));
    }
    output::print(|out| Ok(writeln!(out, "replayed {transactions} transactions, {blocks} blocks")?))
}

//! `recover`: what opening a volume after a crash does, and nothing else.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use parext4::DeviceOptions;

use crate::image;

/// Replay the journal and delete what was unlinked while open
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image file or block device
    image: PathBuf,
    /// Only replay the journal
    #[arg(long)]
    journal_only: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let device = image::open_device(&args.image, &DeviceOptions::new())?;
    let replayed = parext4::replay_journal(device).with_context(|| args.image.display().to_string())?;
    if !args.journal_only {
        image::write(&args.image, |_| Ok(()))?;
    }
    let (transactions, blocks) = (replayed.transactions, replayed.blocks);
    writeln!(std::io::stdout().lock(), "replayed {transactions} transactions, {blocks} blocks")?;
    Ok(())
}

//! `umount`: unmounts an image.

use std::path::PathBuf;

use anyhow::Result;
use parext4_mount::unmount;

/// Unmount a directory; when this returns, the image is closed
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory that the image is mounted on
    dir: PathBuf,
    /// Detach the directory now; the image is closed when no process uses it any more
    #[arg(short, long)]
    lazy: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    Ok(unmount(&args.dir, args.lazy)?)
}

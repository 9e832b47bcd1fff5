//! `umount`: ends a mount.

use std::path::PathBuf;

use anyhow::Result;
use parext4_mount::unmount;

/// Unmount a directory; when this returns, the image is closed
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where an image is mounted
    dir: PathBuf,
    /// Take the directory out of sight now; the image is closed when nobody uses it any more
    #[arg(short, long)]
    lazy: bool,
}

pub fn run(args: &Args) -> Result<()> {
    Ok(unmount(&args.dir, args.lazy)?)
}

//! The program under the name `mount.fuse.parext4`, as mount(8) calls it for `mount -t fuse.parext4` and fstab.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;

use super::Args;

/// Mount an image on a directory, for mount(8)
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.parext4", version)]
pub struct Helper {
    /// An image file or block device
    image: PathBuf,
    /// An empty directory
    dir: PathBuf,
    /// Separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Only check the options
    #[arg(short = 'f')]
    fake: bool,
    /// Has no effect
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Has no effect
    #[arg(short = 'v')]
    verbose: bool,
    /// Has no effect
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
}

impl Helper {
    /// Whether the program was called by such a name.
    pub fn is_called(program: &OsStr) -> bool {
        Path::new(program).file_name().is_some_and(|name| name == "mount.fuse.parext4")
    }

    /// Mounts as asked.
    pub fn run(self) -> Result<()> {
        let Self { image, dir, options, fake, .. } = self;
        let args = Args { image, dir, options, foreground: false, daemon: false };
        if fake { args.mount_options().map(drop) } else { super::run(&args) }
    }
}

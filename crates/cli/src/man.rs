//! `man`: writes the manual pages.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap_mangen::Man;

/// Write the manual pages into a directory, such as /usr/local/share/man
///
/// The pages of parext4 and its commands go into man1, the pages of the programs that mount(8) and umount(8) call into
/// man8.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory that holds man1 and man8; made if it does not exist
    #[arg(long)]
    dir: PathBuf,
}

/// Writes the pages of `command` with its subcommands, and of `helpers`.
pub fn run(args: &Args, command: clap::Command, helpers: Vec<clap::Command>) -> Result<()> {
    write(&args.dir, command, helpers).with_context(|| args.dir.display().to_string())
}

fn write(dir: &Path, command: clap::Command, helpers: Vec<clap::Command>) -> io::Result<()> {
    let (user, system) = (dir.join("man1"), dir.join("man8"));
    std::fs::create_dir_all(&user)?;
    std::fs::create_dir_all(&system)?;
    clap_mangen::generate_to(command, user)?;
    helpers.into_iter().try_for_each(|helper| Man::new(helper).section("8").generate_to(&system).map(drop))
}

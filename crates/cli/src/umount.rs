//! `umount`: unmounts an image.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use parext4_mount::{Unmount, call_umount, unmount};

use crate::error;

/// Unmount a directory; when this returns, the image is closed
///
/// If another mount of the volume stays, such as a bind mount or that of a container, everything is
/// durable instead, and the command says which processes hold the volume.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory that the image is mounted on
    dir: PathBuf,
    /// Detach the directory now; the image is closed when no process uses it any more
    #[arg(short, long)]
    lazy: bool,
    /// Call umount2(2), and do nothing else
    #[arg(long, hide = true)]
    call: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    if args.call { Ok(call_umount(&args.dir, args.lazy)?) } else { dir(&args.dir, args.lazy) }
}

/// Unmounts a directory. Prints what it waits for.
pub fn dir(dir: &Path, lazy: bool) -> Result<()> {
    let announce = |line: &str| error::say(&error::printable(line));
    Ok(unmount(dir, &Unmount { detach: lazy, announce: &announce, call_umount: &call })?)
}

/// Returns a command that unmounts the directory that is its last argument, and does nothing else.
fn call() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["umount", "--call"]);
    Ok(command)
}

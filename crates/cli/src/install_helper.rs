//! `install-helper`: links the program where mount(8) and umount(8) find it.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::mount::{MOUNT_NAMES, UMOUNT_NAME};
use crate::output;

/// The directory in which mount(8) finds the programs that mount a type of file system.
const PLACE: &str = "sbin";

/// Let mount(8), fstab and systemd mount images by the type fuse.parext4
///
/// Links /sbin/mount.fuse.parext4, /sbin/mount.parext4 and /sbin/umount.fuse.parext4 to this program, wherever it lies.
/// Links that are already right stay as they are.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory that holds sbin, to prepare a package
    #[arg(long, value_name = "DIR", default_value = "/")]
    prefix: PathBuf,
    /// Print the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Remove the links instead
    #[arg(long)]
    remove: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let place = args.prefix.join(PLACE);
    let mut out = output::lock();
    for name in MOUNT_NAMES.into_iter().chain([UMOUNT_NAME]) {
        let path = place.join(name);
        let done =
            if args.remove { remove(&path, args.dry_run)? } else { link(&program, &path, args.dry_run)? };
        writeln!(out, "{}{done}", if args.dry_run { "would: " } else { "" })?;
    }
    Ok(())
}

/// Links `path` to the program. Returns a line that describes the change.
fn link(program: &Path, path: &Path, dry_run: bool) -> Result<String> {
    let old = linked_to(path)?;
    if old.as_deref() == Some(program) {
        return Ok(format!("{} is linked to {} already", path.display(), program.display()));
    }
    if !dry_run {
        let place = path.parent().context("no directory")?;
        std::fs::create_dir_all(place).with_context(|| place.display().to_string())?;
        // A rename replaces the old link in one step, so no mount finds it missing.
        let new = path.with_extension("new");
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).context(new.display().to_string());
            }
            _ => {}
        }
        symlink(program, &new).with_context(|| new.display().to_string())?;
        std::fs::rename(&new, path).with_context(|| path.display().to_string())?;
    }
    Ok(format!("link {} to {}", path.display(), program.display()))
}

fn remove(path: &Path, dry_run: bool) -> Result<String> {
    if linked_to(path)?.is_none() {
        return Ok(format!("{} is not there", path.display()));
    }
    if !dry_run {
        std::fs::remove_file(path).with_context(|| path.display().to_string())?;
    }
    Ok(format!("remove {}", path.display()))
}

/// Returns the target of a link, `None` if nothing is there. A file that is not a link was not installed by parext4, so
/// it is an error.
fn linked_to(path: &Path) -> Result<Option<PathBuf>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
        Ok(metadata) => {
            ensure!(
                metadata.is_symlink(),
                "{}: there is a file that parext4 did not install",
                path.display()
            );
            std::fs::read_link(path).map(Some).with_context(|| path.display().to_string())
        }
    }
}

//! `install-helper`: links the program where mount(8) and umount(8) find it.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::mount::{MOUNT_NAMES, UMOUNT_NAME};
use crate::output;

/// The directory in which mount(8) finds the programs that mount a type of file system.
const PLACE: &str = "sbin";
/// Where a package has the program.
const PROGRAMS: [&str; 5] =
    ["usr/bin/parext4", "usr/local/bin/parext4", "bin/parext4", "usr/sbin/parext4", "sbin/parext4"];

/// Let mount(8), fstab and systemd mount images by the type fuse.parext4
///
/// Links /sbin/mount.fuse.parext4, /sbin/mount.parext4 and /sbin/umount.fuse.parext4 to this
/// program, wherever it lies. Links that are already right stay as they are. With --prefix, the
/// links lead to where the program will be once the package is installed: to the place of this
/// program below DIR, or else of the parext4 in usr/bin, usr/local/bin, bin, usr/sbin or sbin below
/// DIR.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Prepare a package in this directory, which stands for /
    #[arg(long, value_name = "DIR", default_value = "/")]
    prefix: PathBuf,
    /// Absolute path of the program to which the links lead
    #[arg(long, value_name = "PATH", conflicts_with = "remove")]
    program: Option<PathBuf>,
    /// Print the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Remove the links instead
    #[arg(long)]
    remove: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let program = if args.remove { None } else { Some(program(args)?) };
    let place = args.prefix.join(PLACE);
    output::print(|out| {
        for name in MOUNT_NAMES.into_iter().chain([UMOUNT_NAME]) {
            let path = place.join(name);
            let done = match &program {
                Some(program) => link(program, &path, args.dry_run)?,
                None => remove(&path, args.dry_run)?,
            };
            writeln!(out, "{}{done}", if args.dry_run { "would: " } else { "" })?;
        }
        Ok(())
    })
}

/// Returns the path of the program on the system where the links will be.
fn program(args: &Args) -> Result<PathBuf> {
    if let Some(program) = &args.program {
        ensure!(program.is_absolute(), "--program: {} is not an absolute path", program.display());
        return Ok(program.clone());
    }
    let this = std::env::current_exe().context("finding this program")?;
    // It need not exist yet, and leads to no program then.
    let prefix = args.prefix.canonicalize().unwrap_or_else(|_| args.prefix.clone());
    if let Ok(inside) = this.strip_prefix(&prefix) {
        return Ok(Path::new("/").join(inside));
    }
    let inside = PROGRAMS.into_iter().find(|inside| prefix.join(inside).exists());
    let inside = inside.with_context(|| {
        let list = PROGRAMS.join(", ");
        format!("{}: none of {list} is there; --program says where the program will be", prefix.display())
    })?;
    Ok(Path::new("/").join(inside))
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
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let linked = match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => symlink(program, &new).and_then(|()| std::fs::rename(&new, path)),
        };
        linked.with_context(|| path.display().to_string())?;
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

/// Returns the target of a link, `None` if nothing is there. A file that is not a link was not
/// installed by parext4, so it is an error.
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

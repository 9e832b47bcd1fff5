//! The command lines of the helpers that mount(8) and umount(8) call, for `mount -t fuse.parext4`,
//! fstab and systemd.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{CommandFactory, Parser};
use parext4_mount::{MountOptions, OptionError};

use super::Args;
use crate::umount;

/// Names under which mount(8) finds the program.
pub const MOUNT_NAMES: [&str; 2] = ["mount.fuse.parext4", "mount.parext4"];
/// Name under which umount(8) finds the program. By default umount(8) asks statfs(2) for the type,
/// which says `fuse`, and finds no program. A mount with an option for user space, as `uhelper=` or
/// `x-...`, has an entry in /run/mount/utab; then umount(8) reads the type from the list of mounts.
pub const UMOUNT_NAME: &str = "umount.fuse.parext4";

/// The command that called the program, with its arguments.
#[derive(Debug)]
pub enum Helper {
    /// mount(8)
    Mount(MountHelper),
    /// umount(8)
    Umount(UmountHelper),
}

/// Mount an image on a directory, for mount(8)
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.parext4", version)]
pub struct MountHelper {
    /// An image file, a block device or a URL
    image: PathBuf,
    /// The directory to mount on
    dir: PathBuf,
    /// Options, separated by commas; the manual page explains all of them
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Only check the options
    #[arg(short = 'f')]
    fake: bool,
    /// Leave out options that are not known
    #[arg(short = 's')]
    sloppy: bool,
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

/// Unmount a directory, for umount(8)
#[derive(Debug, Parser)]
#[command(name = "umount.fuse.parext4", version)]
pub struct UmountHelper {
    /// Where an image is mounted
    dir: PathBuf,
    /// Detach the directory now; the mount ends when its last user has gone
    #[arg(short = 'l')]
    lazy: bool,
    /// Has no effect
    #[arg(short = 'f')]
    force: bool,
    /// Has no effect
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Has no effect
    #[arg(short = 'r')]
    read_only: bool,
    /// Has no effect
    #[arg(short = 'v')]
    verbose: bool,
    /// Has no effect
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
}

/// Returns the command lines of the helpers, for manual pages.
pub fn commands() -> Vec<clap::Command> {
    vec![MountHelper::command(), UmountHelper::command()]
}

impl Helper {
    /// Parses the arguments if `program` is one of the helpers' names.
    pub fn parse(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_name()?;
        if name == UMOUNT_NAME {
            return Some(Self::Umount(UmountHelper::parse()));
        }
        MOUNT_NAMES.iter().any(|known| name == *known).then(|| Self::Mount(MountHelper::parse()))
    }

    /// Mounts or unmounts.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Mount(helper) => helper.run(),
            Self::Umount(UmountHelper { dir, lazy, .. }) => umount::dir(&dir, lazy),
        }
    }
}

impl MountHelper {
    fn run(self) -> Result<()> {
        let Self { image, dir, mut options, fake, sloppy, .. } = self;
        if sloppy {
            options = options.iter().map(|list| known(list)).collect();
        }
        let (standby, foreground, daemon) = (false, false, false);
        // mount(8) covers what a directory holds, for every type of file system.
        let args = Args { image, dir, options, standby, foreground, daemon, covers: true };
        if fake { args.mount_options().map(drop) } else { super::run(&args) }
    }
}

/// Returns the options of a list that parext4 knows; warns about each other one.
fn known(list: &str) -> String {
    let is_known = |option: &&str| {
        let error = MountOptions::new().add(option).err();
        let unknown = matches!(error, Some(OptionError::Unknown(_)));
        if unknown {
            crate::error::say(&format!("warning: unknown mount option {option:?} is left out"));
        }
        !unknown
    };
    list.split(',').filter(is_known).collect::<Vec<_>>().join(",")
}

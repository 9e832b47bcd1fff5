//! The peers: other file systems, which are made, mounted and unmounted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::command::{command, run};

/// An implementation of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// The kernel's ext4.
    Ext4,
    /// The kernel's XFS.
    Xfs,
    /// ext4 by parext4, through FUSE.
    Mounted(CacheMode),
    /// ext4 by e2fsprogs, through FUSE.
    Fuse2fs,
    /// The null file system, which answers at once, through FUSE: an upper bound for file systems
    /// there.
    Null,
}

/// The option `cache` of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    Kernel,
    Writeback,
    Direct,
}

impl CacheMode {
    /// Returns the mount options.
    fn option(self) -> &'static str {
        match self {
            Self::Kernel => "cache=kernel",
            Self::Writeback => "cache=writeback",
            Self::Direct => "cache=direct",
        }
    }
}

impl FileSystem {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Mounted(CacheMode::Kernel) => "parext4 mounted",
            Self::Mounted(CacheMode::Writeback) => "parext4 mounted, writeback",
            Self::Mounted(CacheMode::Direct) => "parext4 mounted, direct",
            Self::Fuse2fs => "fuse2fs",
            Self::Null => "FUSE itself",
        }
    }

    /// Returns the programs that the peer needs.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["mkfs.ext4", "mount"],
            Self::Xfs => &["mkfs.xfs", "mount"],
            Self::Mounted(_) => &["mkfs.ext4", "fusermount3"],
            Self::Fuse2fs => &["mkfs.ext4", "fuse2fs"],
            Self::Null => &["fusermount3"],
        }
    }

    /// Returns true if a program serves the image, instead of the kernel, which needs a block
    /// device.
    pub fn is_program(self) -> bool {
        matches!(self, Self::Mounted(_) | Self::Fuse2fs | Self::Null)
    }

    /// Returns the command that serves an image in the foreground, so that its exit can be awaited.
    fn server(self, image: &Path, dir: &Path) -> Result<Command> {
        let own = std::env::current_exe()?;
        // Some databases refuse to run as root.
        let access = if rustix::process::geteuid().is_root() { "allow_other," } else { "" };
        Ok(match self {
            Self::Mounted(cache) => {
                let mut server = command(own, ["mount", "--foreground", "-o"]);
                server.arg(format!("{access}{}", cache.option())).args([image, dir]);
                server
            }
            Self::Null => command(own, [Path::new("null"), dir]),
            _ => {
                let mut server = command("fuse2fs", ["-f", "-o"]);
                server.arg(format!("{access}fakeroot,rw")).args([image, dir]);
                server
            }
        })
    }

    /// Makes the file system on a device or image, overwriting its contents.
    fn make(self, path: &Path) -> Result<()> {
        let options: &[&str] = match self {
            Self::Null => return Ok(()),
            // Initializes everything now, so that no background work disturbs the measurement.
            // Discards nothing, because that would punch holes into the image.
            Self::Ext4 | Self::Mounted(_) | Self::Fuse2fs => {
                &["-q", "-F", "-b4096", "-Jsize=64", "-Enodiscard,lazy_itable_init=0,lazy_journal_init=0"]
            }
            Self::Xfs => &["-q", "-f", "-K"],
        };
        run(command(self.programs()[0], options.iter().map(Path::new).chain([path]))).map(drop)
    }
}

/// A loop device over an image; detached when dropped.
#[derive(Debug)]
pub struct Loop {
    device: PathBuf,
}

impl Loop {
    /// Attaches `image` with direct I/O, to avoid a second cache.
    pub fn attach(image: &Path) -> Result<Self> {
        let options = ["--find", "--show", "--direct-io=on"].map(Path::new);
        let device = run(command("losetup", options.into_iter().chain([image])))?;
        Ok(Self { device: device.trim().into() })
    }

    pub fn device(&self) -> &Path {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = run(command("losetup", [Path::new("--detach"), &self.device])) {
            eprintln!("parext4: cannot detach {}: {error:#}", self.device.display());
        }
    }
}

/// A mounted peer; unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    dir: TempDir,
    /// The program that serves the mount.
    server: Option<Child>,
}

impl Mount {
    /// Makes the peer's file system on `path` and mounts it.
    pub fn new(peer: FileSystem, path: &Path) -> Result<Self> {
        peer.make(path)?;
        let dir = tempfile::Builder::new().prefix("parext4-mount-").tempdir()?;
        if peer.is_program() {
            return serve(peer, path, dir);
        }
        run(command("mount", [Path::new("-t"), Path::new(peer.name()), path, dir.path()]))?;
        Ok(Self { dir, server: None })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmount = |program, option: &str| run(command(program, [Path::new(option), self.dir.path()]));
        let unmounted = match &self.server {
            None => unmount("umount", "-v").or_else(|_| unmount("umount", "--lazy")),
            Some(_) => unmount("fusermount", "-u").or_else(|_| unmount("fusermount3", "-u")),
        };
        if let Err(error) = unmounted {
            eprintln!("parext4: cannot unmount {}: {error:#}", self.dir.path().display());
        }
        if let Some(server) = &mut self.server {
            // The server writes back its cache before it exits. The next run must not overlap with
            // that.
            let _ = server.wait();
        }
    }
}

/// Starts a program that mounts and serves an image, and waits until it is mounted.
fn serve(peer: FileSystem, image: &Path, dir: TempDir) -> Result<Mount> {
    const LONGEST: Duration = Duration::from_mins(1);
    let before = fs::metadata(dir.path())?.dev();
    let mut program = peer.server(image, dir.path())?;
    let server = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server = server.with_context(|| format!("starting {}", peer.name()))?;
    let started = Instant::now();
    while fs::metadata(dir.path())?.dev() == before {
        if let Some(status) = server.try_wait()? {
            bail!("{}: {status}", peer.name());
        }
        if started.elapsed() > LONGEST {
            server.kill()?;
            server.wait()?;
            bail!("{} has not mounted the image after {} s", peer.name(), LONGEST.as_secs());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Mount { dir, server: Some(server) })
}

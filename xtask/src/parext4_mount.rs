//! Images mounted by parext4, by a server that can be killed.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::cmd;
use crate::interrupt;
use crate::testbed::{TestBed, remove};

/// The time between two checks of the server's progress, and the number of checks.
const POLL: Duration = Duration::from_millis(20);
const CHECKS: u32 = 6_000;

/// Fails with the reason if this machine cannot mount anything.
pub fn check() -> Result<()> {
    std::fs::File::options().read(true).write(true).open("/dev/fuse").context("/dev/fuse cannot be used")?;
    Ok(())
}

/// A mounted image. Drop unmounts it and kills its server.
pub struct Mounted<'a> {
    bed: &'a TestBed,
    server: Child,
    dir: PathBuf,
}

impl<'a> Mounted<'a> {
    /// Mounts `image` on the folder `dir`, with mount options such as `cache=direct`.
    pub fn new(bed: &'a TestBed, image: &Path, dir: &Path, options: &str) -> Result<Self> {
        let command = bed.parext4("mount --foreground -o").arg(options).arg(image).arg(dir);
        let log = bed.path("mount-server.log");
        remove(&log)?;
        let mut mounted = Self { bed, server: command.start_logged(&log)?, dir: dir.into() };
        for _ in 0..CHECKS {
            if is_mounted(dir)? {
                return Ok(mounted);
            }
            if let Some(status) = mounted.server.try_wait()? {
                bail!("the server has ended: {status}\n{}", std::fs::read_to_string(&log)?);
            }
            wait()?;
        }
        bail!("the server does not mount");
    }

    /// Returns the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the memory of the server, in KiB.
    pub fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("a process with memory")?;
        Ok(kib.parse()?)
    }

    /// Kills the server and unmounts the dead mount.
    pub fn kill(mut self) -> Result<()> {
        self.kill_server()?;
        self.detach()
    }

    /// Kills the server. The mount stays, and every call on it fails.
    pub fn kill_server(&mut self) -> Result<()> {
        self.server.kill()?;
        self.server.wait()?;
        Ok(())
    }

    /// Unmounts a volume that has stopped, and returns what `umount` said about data that may be
    /// lost.
    pub fn unmount_stopped(mut self) -> Result<String> {
        let output = self.bed.parext4("umount").arg(&self.dir).output()?;
        if output.status.success() || is_mounted(&self.dir)? {
            bail!("umount of a stopped volume: {}: {}", output.status, output.text);
        }
        self.server.wait()?;
        Ok(output.text)
    }

    /// Unmounts and waits for the server to close the image.
    pub fn unmount(mut self) -> Result<()> {
        self.detach()?;
        let status = self.server.wait()?;
        if !status.success() {
            bail!("the server: {status}");
        }
        Ok(())
    }

    /// Programs that have just ended may still have files open.
    fn detach(&self) -> Result<()> {
        let mut said = String::new();
        for _ in 0..CHECKS {
            let output = self.bed.parext4("umount").arg(&self.dir).output()?;
            if output.status.success() {
                return Ok(());
            }
            said = output.text;
            wait()?;
        }
        bail!("cannot unmount: {said}");
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if is_mounted(&self.dir).unwrap_or(true) {
            let _ = cmd("umount").arg("--lazy").arg(&self.dir).always().run();
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn wait() -> Result<()> {
    thread::sleep(POLL);
    interrupt::check()
}

fn is_mounted(dir: &Path) -> Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(1) == dir.to_str()))
}

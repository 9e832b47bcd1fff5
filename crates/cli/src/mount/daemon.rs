//! Mounts in the background: the command starts a second process of itself, and waits until that
//! process reports that the directory is mounted, or an error.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::log;
use crate::error::Reported;
use crate::output;

/// The message of the background process when the directory is mounted, or when the process stands
/// by.
const READY: &[u8] = b"ready\n";

/// Mounts in the background.
pub fn start(image: &Path, dir: &Path, options: &[String], standby: bool) -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command.arg("mount").arg("--daemon");
    for list in options {
        command.arg("-o").arg(list);
    }
    command.args(standby.then_some("--standby"));
    command.arg("--").arg(image).arg(dir);
    // The error output is inherited, so that the user sees at once what the process waits for. It
    // releases that output when it is ready.
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut daemon = command.spawn().context("starting in the background")?;

    let mut said = Vec::new();
    let output = daemon.stdout.take().context("no output")?;
    output.take(READY.len() as u64).read_to_end(&mut said)?;
    if said == READY {
        return Ok(());
    }
    let status = daemon.wait()?;
    match status.code() {
        Some(1) => Err(Reported.into()),
        _ => bail!("the process in the background ended with {status}"),
    }
}

/// The start of a server, until the command that started it returns.
#[derive(Debug)]
pub struct Startup {
    is_daemon: bool,
    is_finished: bool,
}

impl Startup {
    /// Returns the start of a server; `is_daemon` if another process waits for it.
    pub fn new(is_daemon: bool) -> Self {
        Self { is_daemon, is_finished: false }
    }

    /// Lets the command that started the server return. Does nothing if it has returned, or if the
    /// server is the command.
    pub fn finish(&mut self) -> Result<()> {
        if !self.is_daemon || std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        ready()?;
        log::leave_error_output();
        Ok(())
    }

    /// Returns true if the command that started the server has returned, so that only the log shows
    /// messages.
    pub fn has_returned(&self) -> bool {
        self.is_finished
    }
}

/// Reports that the directory is mounted, and releases the inherited working directory and outputs.
fn ready() -> Result<()> {
    std::env::set_current_dir("/").context("leaving the working directory")?;
    output::print(|out| Ok(out.write_all(READY)?))?;
    let nowhere = File::options().write(true).open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

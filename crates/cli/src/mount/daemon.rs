//! Mounts in the background: the command starts a second process of itself, and waits until that process reports that the
//! directory is mounted, or an error.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The message of the background process when the directory is mounted.
const READY: &[u8] = b"ready\n";

/// Mounts in the background.
pub fn start(image: &Path, dir: &Path, options: &[String]) -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command.arg("mount").arg("--daemon");
    for list in options {
        command.arg("-o").arg(list);
    }
    command.arg("--").arg(image).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut daemon = command.spawn().context("starting in the background")?;

    let (output, errors) = (daemon.stdout.take(), daemon.stderr.take());
    let mut said = Vec::new();
    output.context("no output")?.take(READY.len() as u64).read_to_end(&mut said)?;
    let mut text = String::new();
    errors.context("no errors")?.read_to_string(&mut text)?;
    if said == READY {
        // Warnings.
        eprint!("{text}");
        return Ok(());
    }
    let status = daemon.wait()?;
    match text.trim().strip_prefix("parext4: ") {
        Some(error) => bail!("{error}"),
        None => bail!("the process in the background ended with {status}: {text}"),
    }
}

/// Reports that the directory is mounted, and releases the inherited working directory and outputs.
pub fn ready() -> Result<()> {
    std::env::set_current_dir("/").context("leaving the working directory")?;
    let mut output = std::io::stdout();
    output.write_all(READY)?;
    output.flush()?;
    let nowhere = File::options().write(true).open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

//! Runs the programs of Ceph.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a command with `input`, and returns what it printed. Fails with its messages.
pub(crate) fn run(command: &mut Command, input: &str) -> Result<String> {
    let what = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| what.clone())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that has ended without reading fails below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{what}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

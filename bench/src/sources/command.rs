//! Runs other programs, such as mkfs and mount.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Returns the command for `program`, which is found in `PATH` or in the directories of the
/// administrator.
pub fn command(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", path());
    command.args(args).stdin(Stdio::null());
    // Ctrl-C must end only this program, not the programs that clean up.
    command.process_group(0);
    command
}

/// Returns `PATH` with the directories of the administrator, and with the directories that Debian
/// has for PostgreSQL's programs.
fn path() -> String {
    let mut path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    for version in std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten() {
        path += &format!(":{}", version.path().join("bin").display());
    }
    path
}

/// Runs a command and returns its output.
///
/// # Errors
/// If the exit status is not 0, with the messages of the program.
pub fn run(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}: {}", output.status, said.trim().replace('\n', "; "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns true if the program is installed.
pub fn exists(program: &str) -> bool {
    command(program, ["-V"]).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

//! Runs other programs, such as e2fsck and debugfs.

use std::process::{Command, Output};

/// Prints what was not tested, and the reason.
pub fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}

/// Runs a program with English messages. `None`, after a call of [`skipped`], if it is not installed.
pub fn tool(command: &mut Command) -> Option<Output> {
    let output = command.env("LC_ALL", "C").output();
    if output.is_err() {
        skipped(&format!("{} is not installed", command.get_program().to_string_lossy()));
    }
    output.ok()
}

/// Returns what a program printed: its output, then its errors.
pub fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

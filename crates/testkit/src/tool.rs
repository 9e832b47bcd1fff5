//! Runs other programs, such as e2fsck and debugfs.

use std::path::Path;
use std::process::{Command, Output};

use crate::poll::until;
use crate::skip::skipped;

/// Runs a program with English messages. `None`, after a call of [`skipped`], if it is not installed.
pub fn tool(command: &mut Command) -> Option<Output> {
    let output = command.env("LC_ALL", "C").output();
    if output.is_err() {
        skipped(&format!("{} is not installed", command.get_program().to_string_lossy()));
    }
    output.ok()
}

/// Unmounts a volume of the kernel. Retries while it is busy: between fork and exec, a program that another test is starting holds
/// copies of this process's files, and with them the mount.
pub fn kernel_umount(dir: &Path) {
    let mut message = String::new();
    let is_over = until(|| {
        let output = tool(Command::new("umount").arg(dir)).expect("umount is installed, as mount is");
        message = text(&output);
        output.status.success() || !message.contains("busy")
    });
    assert!(is_over && message.is_empty() || std::thread::panicking(), "{message}");
}

/// Returns what a program printed: its output, then its errors.
pub fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

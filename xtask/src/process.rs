//! [`Process`]: a program that serves while a campaign or a benchmark runs.

use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::command::Cmd;
use crate::interrupt;

/// Longest time until a program is ready.
const PATIENCE: Duration = Duration::from_mins(2);
/// Number of lines of its output that are shown of a program that has failed.
const LAST_LINES: usize = 10;

/// A program that is killed when dropped.
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program with its output at the end of the file `log`.
    pub fn start(name: &'static str, command: Cmd, log: PathBuf) -> Result<Process> {
        Ok(Process { name, child: command.start_logged(&log)?, log })
    }

    /// Waits until `is_ready` returns true, while the process runs.
    pub fn wait_until(&mut self, is_ready: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_ready() {
            interrupt::check()?;
            if let Some(status) = self.child.try_wait()? {
                bail!("{} has ended, {status}: {}", self.name, self.said());
            }
            ensure!(Instant::now() < deadline, "{} is not ready: {}", self.name, self.said());
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Returns the last lines that the program has printed.
    fn said(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Explains a failure of its clients.
        if let Ok(Some(status)) = self.child.try_wait() {
            println!("        {} had ended by itself, {status}: {}", self.name, self.said());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

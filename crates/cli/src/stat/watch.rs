//! Prints the report of a mount each second.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, bounded};
use parext4_mount::report::{Report, ReportError, report};

use super::{explained, json, print, text};

const INTERVAL: Duration = Duration::from_secs(1);
/// Moves the cursor to the upper left and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Prints reports until a signal asks the program to end, or the image is unmounted.
pub fn run(dir: &Path, as_json: bool) -> Result<()> {
    let interrupted = interrupts()?;
    let redraws = !as_json && std::io::stdout().is_terminal();
    let mut before: Option<Report> = None;
    loop {
        let now = match report(dir) {
            Ok(now) if before.as_ref().is_none_or(|before| is_same(before, &now)) => now,
            Err(error) if before.is_none() || !is_gone(&error) => return Err(explained(dir, error)),
            Ok(_) | Err(_) => {
                return if as_json { Ok(()) } else { print("not mounted any more\n") };
            }
        };
        let text = match as_json {
            true => format!("{}\n", json(&now)?),
            false => text::describe(&now, before.as_ref()),
        };
        let (clear, behind) = if redraws { (CLEAR, "") } else { ("", if as_json { "" } else { "\n" }) };
        print(&format!("{clear}{text}{behind}"))?;
        before = Some(now);
        if interrupted.recv_timeout(INTERVAL).is_ok() {
            return Ok(());
        }
    }
}

/// Returns a channel that receives the first signal that asks the program to end.
fn interrupts() -> Result<Receiver<()>> {
    let (sender, receiver) = bounded(1);
    ctrlc::set_handler(move || {
        // The channel is full after the first signal.
        let _ = sender.try_send(());
    })
    .context("catching Ctrl-C")?;
    Ok(receiver)
}

/// Returns true if both reports are of one mount.
fn is_same(before: &Report, now: &Report) -> bool {
    before.mount.pid == now.mount.pid && before.mount.mounted_for_ms <= now.mount.mounted_for_ms
}

fn is_gone(error: &ReportError) -> bool {
    let not_found = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::NotFound;
    match error {
        ReportError::NotMounted(_) | ReportError::Below { .. } | ReportError::Dead(_) => true,
        ReportError::Failed { cause, .. } => not_found(cause),
        _ => false,
    }
}

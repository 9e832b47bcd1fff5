//! Ctrl-C and its like become an error of the command that runs, so that what it made is removed on the way out.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Sets the handler; once, at the start of a command.
pub fn install() -> Result<()> {
    // Relaxed: the flag publishes nothing but itself.
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed)).context("catching Ctrl-C")
}

/// Whether a signal asked the program to end.
pub fn requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Fails once a signal asked the program to end.
pub fn check() -> Result<()> {
    ensure!(!requested(), "interrupted");
    Ok(())
}

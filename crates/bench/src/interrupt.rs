//! Turns SIGINT, SIGTERM and SIGHUP into an error of the running command, so that destructors remove its files and mounts.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Sets the handler. Commands call this once, at their start.
///
/// # Errors
/// If a handler is set already.
pub fn install() -> Result<()> {
    // Relaxed: the flag publishes no other data.
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed)).context("catching Ctrl-C")
}

/// Returns true if a signal asked the program to end.
pub fn requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Fails after a signal has asked the program to end.
///
/// # Errors
/// "interrupted".
pub fn check() -> Result<()> {
    ensure!(!requested(), "interrupted");
    Ok(())
}

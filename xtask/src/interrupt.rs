//! Ctrl-C, SIGTERM and SIGHUP become an error of the command that runs, so that guards clean up.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Sets the handler; once, at the start of the program.
pub fn install() -> Result<()> {
    // Relaxed: the flag publishes nothing but itself.
    Ok(ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))?)
}

/// True once a signal asked the program to end.
pub fn requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Fails once a signal asked the program to end.
pub fn check() -> Result<()> {
    if requested() {
        bail!("interrupted");
    }
    Ok(())
}

//! Turns SIGINT, SIGTERM and SIGHUP into an error of the running command, so that destructors
//! remove its files and mounts.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

/// The number of the signal of Ctrl-C.
const SIGINT: i32 = 2;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Sets the handler. Commands call this once, at their start.
///
/// # Errors
/// If a handler is set already.
pub fn install() -> Result<()> {
    // Relaxed: the flag publishes no other data.
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed)).context("catching Ctrl-C")
}

/// Sets the handler, unless the process was started with one of the signals ignored, as by nohup(1)
/// or in the background of a script: then all of them keep their effect. A second signal ends the
/// process at once, for work that does not check for the first.
///
/// # Errors
/// The handler cannot be set.
pub fn install_unless_ignored() -> Result<()> {
    let handler = || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(128 + SIGINT);
        }
    };
    match ctrlc::try_set_handler(handler) {
        Err(ctrlc::Error::System(error)) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        set => set.context("catching Ctrl-C"),
    }
}

/// Returns the flag that is true once a signal has asked the program to end.
pub fn flag() -> &'static AtomicBool {
    &INTERRUPTED
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

//! Tests that cannot run, or only in part, and the reasons.
//!
//! `PAREXT4_SKIPPED` names a file to which each reason is appended as a line `TEST: WHY`, for the
//! summary of `cargo xtask test`.

use std::fs::File;
use std::io::Write;

/// Prints what was not tested because the machine is not set up for it: a program is missing, there
/// is no root or no loop device.
///
/// # Panics
/// Under continuous integration, where a machine must be set up for all tests.
#[track_caller]
pub fn skipped(why: &str) {
    assert!(!is_ci() || std::thread::panicking(), "may not be skipped under CI: {why}");
    skip_allowed(why);
}

/// Prints what was not tested because this kernel or file system does not have it, which no set-up
/// changes.
pub fn skip_allowed(why: &str) {
    eprintln!("SKIPPED: {why}");
    let Some(path) = std::env::var_os("PAREXT4_SKIPPED") else { return };
    let mut file =
        File::options().append(true).create(true).open(path).expect("PAREXT4_SKIPPED can be opened");
    // The harness names the thread of a test after the test.
    let thread = std::thread::current();
    let line = format!("{}: {}\n", thread.name().unwrap_or("main"), why.trim().replace('\n', " "));
    // One call of write(2), so that lines of several processes do not mix.
    file.write_all(line.as_bytes()).expect("PAREXT4_SKIPPED can be written");
}

/// Returns true under continuous integration.
fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

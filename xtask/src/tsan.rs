//! The stress tests under ThreadSanitizer, which only the nightly toolchain has.

use std::path::PathBuf;

use anyhow::Result;

use crate::command::Cmd;
use crate::nightly::{self, TARGET, nightly};
use crate::report::Report;
use crate::scope::Scope;
use crate::{cargo_test, tsan_report, workspace};

/// What ThreadSanitizer does not report of libraries in C++; each line says why.
const SUPPRESSIONS: &str = "crates/parext4/tests/tsan-libraries.supp";

/// Runs the stress tests of the range lock, and unless the run is quick of the engine, under
/// ThreadSanitizer.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    if let Err(error) = nightly::install_with_sources() {
        report.skip("tsan", &format!("{error:#}"));
        return Ok(());
    }
    tsan_report::remove(&dir())?;
    cargo_test::run(tests(scope), "tsan", report)?;
    tsan_report::show(&dir(), "tsan", report)
}

/// Returns the command that runs the tests.
fn tests(scope: Scope) -> Cmd {
    // ThreadSanitizer sees synchronisation inside the standard library only if that is instrumented
    // too.
    nightly("cargo test -Zbuild-std")
        .args(scope.quick_or("-p rangelock", "-p rangelock -p parext4"))
        .args("--test stress --target")
        .arg(TARGET)
        .dir(workspace::root())
        .env("RUSTFLAGS", "-Zsanitizer=thread")
        .env("TSAN_OPTIONS", options())
        .env("CARGO_TARGET_DIR", dir())
        .env("PAREXT4_STRESS_SECONDS", scope.pick("1", "30"))
}

/// The folder of the build and of the reports.
fn dir() -> PathBuf {
    workspace::target().join("tsan")
}

/// Returns the options of ThreadSanitizer.
fn options() -> String {
    let suppressions = workspace::root().join(SUPPRESSIONS);
    format!("suppressions={} log_path={}", suppressions.display(), tsan_report::path(&dir()).display())
}

//! The stress tests under ThreadSanitizer, which only the nightly toolchain has.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::Cmd;
use crate::nightly::{self, TARGET, nightly};
use crate::report::Report;
use crate::scope::Scope;
use crate::{cargo_test, tsan_report, workspace};

/// For the standard library as rustup ships it, and for libraries in C++; each line says why.
const STD: &str = "crates/parext4/tests/tsan-std.supp";
const LIBRARIES: &str = "crates/parext4/tests/tsan-libraries.supp";

/// Runs the stress tests under ThreadSanitizer.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    match tests(scope)? {
        Some(command) => {
            tsan_report::remove(&dir())?;
            cargo_test::run(command, "tsan", report)?;
            tsan_report::show(&dir(), "tsan", report)?;
        }
        // Allowed under CI too: the project's toolchain is the stable one.
        None => {
            report.skip_allowed("tsan", "no nightly toolchain (rustup toolchain install nightly -c rust-src)")
        }
    }
    Ok(())
}

/// Returns the command that runs the tests; `None` without the toolchain.
fn tests(scope: Scope) -> Result<Option<Cmd>> {
    let Some(sysroot) = nightly::sysroot()? else { return Ok(None) };
    // ThreadSanitizer sees synchronisation inside the standard library only if that is instrumented too.
    let command = if Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.lock").exists() {
        nightly("cargo test -Zbuild-std")
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            .env("TSAN_OPTIONS", options(&[LIBRARIES])?)
    } else {
        // Synchronisation inside the standard library is suppressed, not seen.
        nightly("cargo test")
            .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
            .env("TSAN_OPTIONS", options(&[STD, LIBRARIES])?)
    };
    let command = command
        .args("-p parext4 -p rangelock --test stress --target")
        .arg(TARGET)
        .dir(workspace::root())
        .env("CARGO_TARGET_DIR", dir())
        .env("PAREXT4_STRESS_SECONDS", scope.pick("1", "30"));
    Ok(Some(command))
}

/// The folder of the build, the suppressions and the reports.
fn dir() -> PathBuf {
    workspace::target().join("tsan")
}

/// Joins the files into the one that ThreadSanitizer reads. Returns its options.
fn options(files: &[&str]) -> Result<String> {
    let read =
        |file: &&str| fs::read_to_string(workspace::root().join(file)).with_context(|| (*file).to_owned());
    let lines: Vec<String> = files.iter().map(read).collect::<Result<_>>()?;
    let dir = dir();
    fs::create_dir_all(&dir)?;
    let path = dir.join("suppressions");
    fs::write(&path, lines.concat())?;
    Ok(format!("suppressions={} log_path={}", path.display(), tsan_report::path(&dir).display()))
}

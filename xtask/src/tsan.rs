//! The stress tests under ThreadSanitizer, which only the nightly toolchain has.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cargo_test;
use crate::command::Cmd;
use crate::nightly::{self, TARGET, nightly};
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace;

/// For the standard library as rustup ships it, and for libraries in C++; each line says why.
const STD: &str = "crates/parext4/tests/tsan-std.supp";
const LIBRARIES: &str = "crates/parext4/tests/tsan-libraries.supp";

/// Runs the stress tests under ThreadSanitizer.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    match tests(scope)? {
        Some(command) => cargo_test::run(command, "tsan", report)?,
        // Allowed under CI too: the project's toolchain is the stable one.
        None => {
            report.skip_allowed("tsan", "no nightly toolchain (rustup toolchain install nightly -c rust-src)")
        }
    }
    Ok(())
}

/// Returns the command that runs the tests; `None` without the toolchain.
pub fn tests(scope: Scope) -> Result<Option<Cmd>> {
    let Some(sysroot) = nightly::sysroot()? else { return Ok(None) };
    // ThreadSanitizer sees synchronisation inside the standard library only if that is instrumented too.
    let command = if Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.lock").exists() {
        nightly("cargo test -Zbuild-std")
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            .env("TSAN_OPTIONS", suppressions(&[LIBRARIES])?)
    } else {
        // Synchronisation inside the standard library is suppressed, not seen.
        nightly("cargo test")
            .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
            .env("TSAN_OPTIONS", suppressions(&[STD, LIBRARIES])?)
    };
    let command = command
        .args("-p parext4 -p rangelock --test stress --target")
        .arg(TARGET)
        .dir(workspace::root())
        .env("CARGO_TARGET_DIR", workspace::target().join("tsan"))
        .env("PAREXT4_STRESS_SECONDS", scope.pick("1", "30"));
    Ok(Some(command))
}

/// Joins the files into the one that ThreadSanitizer reads.
fn suppressions(files: &[&str]) -> Result<String> {
    let read =
        |file: &&str| fs::read_to_string(workspace::root().join(file)).with_context(|| (*file).to_owned());
    let lines: Vec<String> = files.iter().map(read).collect::<Result<_>>()?;
    let dir = workspace::target().join("tsan");
    fs::create_dir_all(&dir)?;
    let path = dir.join("suppressions");
    fs::write(&path, lines.concat())?;
    Ok(format!("suppressions={}", path.display()))
}

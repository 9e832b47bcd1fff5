//! The stress tests under ThreadSanitizer, which only the nightly toolchain has.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::cargo_test;
use crate::nightly::{self, TARGET, nightly};
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace;

/// For the standard library as rustup ships it; each line says why.
const SUPPRESSIONS: &str = "crates/parext4/tests/tsan.supp";

/// Runs the stress tests under ThreadSanitizer.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let Some(sysroot) = nightly::sysroot()? else {
        // Allowed under CI too: the project's toolchain is the stable one.
        report.skip_allowed("tsan", "no nightly toolchain (rustup toolchain install nightly -c rust-src)");
        return Ok(());
    };
    // ThreadSanitizer sees synchronisation inside the standard library only if that is instrumented too.
    let command = if Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.lock").exists() {
        nightly("cargo test -Zbuild-std").env("RUSTFLAGS", "-Zsanitizer=thread")
    } else {
        println!("  component rust-src is missing: std's own synchronisation is suppressed, not seen");
        nightly("cargo test")
            .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
            .env("TSAN_OPTIONS", suppressions()?)
    };
    let command = command
        .args("-p parext4 -p rangelock --test stress --target")
        .arg(TARGET)
        .dir(workspace::root())
        .env("CARGO_TARGET_DIR", workspace::target().join("tsan"))
        .env("PAREXT4_STRESS_SECONDS", scope.pick("1", "30"));
    cargo_test::run(command, "tsan", report)
}

fn suppressions() -> Result<String> {
    let path = workspace::root().join(SUPPRESSIONS);
    ensure!(path.exists(), "{} does not exist", path.display());
    Ok(format!("suppressions={}", path.display()))
}

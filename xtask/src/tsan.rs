//! The stress test under ThreadSanitizer, which only the nightly toolchain has.

use anyhow::{Result, ensure};

use crate::campaign::Scope;
use crate::cargo_test;
use crate::report::Report;
use crate::sh::cmd;
use crate::workspace;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const SUPPRESSIONS: &str = "crates/parext4/tests/tsan.supp";

/// Runs the stress test under ThreadSanitizer.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    if cmd("rustup").args("run nightly rustc --version").output().is_ok_and(|output| output.status.success())
    {
        let command = cmd("rustup")
            .args("run nightly cargo test -p parext4 --test stress --target")
            .arg(TARGET)
            .dir(workspace::root())
            .env("CARGO_TARGET_DIR", workspace::target().join("tsan"))
            .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
            .env("TSAN_OPTIONS", suppressions()?)
            .env("PAREXT4_STRESS_SECONDS", scope.pick("2", "30"));
        return cargo_test::run(command, "tsan", report);
    }
    // Allowed under CI too: the project's toolchain is the stable one.
    report.skip_allowed("tsan", "no nightly toolchain (rustup toolchain install nightly)");
    Ok(())
}

fn suppressions() -> Result<String> {
    let path = workspace::root().join(SUPPRESSIONS);
    ensure!(path.exists(), "{} does not exist", path.display());
    Ok(format!("suppressions={}", path.display()))
}

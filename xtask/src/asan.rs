//! The tests of the device queues, and the range lock under stress, under AddressSanitizer, which
//! only the nightly toolchain has.
//!
//! It sees what we do to memory, not what the kernel does: that a buffer is free too early shows as
//! soon as it is used again.

use anyhow::Result;

use crate::cargo_test;
use crate::command::Cmd;
use crate::nightly::{self, TARGET, nightly};
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace;

/// Words that select a test program, and a word that selects tests of it.
const TESTS: [(&str, &str); 2] =
    [("-p rangelock --test stress", ""), ("-p parext4-device --test device", "queue")];

/// Runs the tests of the range lock, and unless the run is quick of the device queues, under
/// AddressSanitizer.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    if let Err(error) = nightly::install() {
        report.skip("asan", &format!("{error:#}"));
        return Ok(());
    }
    for (words, only) in scope.first(&TESTS) {
        cargo_test::run(test(words).args(only), "asan", report)?;
    }
    Ok(())
}

fn test(words: &str) -> Cmd {
    nightly("cargo test")
        .args(words)
        .args("--target")
        .arg(TARGET)
        .dir(workspace::root())
        .env("RUSTFLAGS", "-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer")
        .env("CARGO_TARGET_DIR", workspace::target().join("asan"))
}

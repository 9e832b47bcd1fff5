//! The nightly toolchain, for the sanitizers.

use anyhow::Result;

use crate::command::{Cmd, cmd};

/// A target must be named, or build scripts are instrumented too.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A command of the nightly toolchain.
pub fn nightly(words: &str) -> Cmd {
    cmd("rustup").args("run nightly").args(words)
}

/// Where the nightly toolchain is, if there is one.
pub fn sysroot() -> Result<Option<String>> {
    match nightly("rustc --print sysroot").output() {
        Ok(output) if output.status.success() => Ok(Some(output.text.trim().to_owned())),
        // Without rustup, or without the toolchain.
        _ => crate::interrupt::check().map(|()| None),
    }
}

//! The nightly toolchain, for the sanitizers.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::{Cmd, cmd};

/// A target must be named, or build scripts are instrumented too.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A command of the nightly toolchain.
pub fn nightly(words: &str) -> Cmd {
    cmd("rustup").args("run nightly").args(words)
}

/// Installs the toolchain, if it is missing.
///
/// # Errors
/// If it cannot be installed, with the command that failed.
pub fn install() -> Result<()> {
    if sysroot().is_err() {
        println!("installing the nightly toolchain");
        cmd("rustup").args("toolchain install nightly --profile minimal --no-self-update").run()?;
    }
    Ok(())
}

/// Installs the toolchain and the sources of its standard library, if they are missing.
///
/// # Errors
/// If they cannot be installed, with the command that failed.
pub fn install_with_sources() -> Result<()> {
    install()?;
    if !sysroot()?.join("lib/rustlib/src/rust/library/Cargo.lock").exists() {
        cmd("rustup").args("component add rust-src --toolchain nightly").run()?;
    }
    Ok(())
}

/// Returns where the toolchain is.
///
/// # Errors
/// If it is not installed.
pub fn sysroot() -> Result<PathBuf> {
    let path = nightly("rustc --print sysroot").run().context("no nightly toolchain")?;
    Ok(Path::new(path.trim()).to_owned())
}

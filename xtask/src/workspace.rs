//! Where things are: the sources, the build outputs, the binary under test, a place for images.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::command::{Cmd, cmd};

/// The root of the sources.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The folder of the build outputs.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A `cargo` command at the root, with `words` as arguments.
pub fn cargo(words: &str) -> Cmd {
    let cargo = cmd(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).dir(root()).args(words);
    // `cargo run` has set these for xtask. Build scripts that read them would run again each time.
    let is_of_xtask =
        |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start));
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| name.to_str().is_some_and(is_of_xtask)).fold(cargo, Cmd::env_remove)
}

/// The largest size of the release binary, in bytes.
const MAX_BINARY_SIZE: u64 = 12_000_000;

/// Builds the release binary of the command line tool and returns its path.
///
/// # Errors
/// If the build fails, or the binary has more than [`MAX_BINARY_SIZE`] bytes.
pub fn build_parext4() -> Result<PathBuf> {
    cargo("build --quiet --release -p parext4-cli").run().context("building parext4")?;
    let binary = target().join("release/parext4");
    let size = binary.metadata()?.len();
    ensure!(size <= MAX_BINARY_SIZE, "the release binary has {size} bytes, more than {MAX_BINARY_SIZE}");
    Ok(binary)
}

/// An empty folder on the disk that holds the build outputs (images need direct I/O, which a temporary folder
/// in memory may refuse). It goes when the value does.
pub fn scratch() -> Result<TempDir> {
    let parent = target().join("xtask");
    std::fs::create_dir_all(&parent)?;
    tempfile::tempdir_in(&parent).with_context(|| format!("no temporary folder in {}", parent.display()))
}

//! Where things are: the sources, the build outputs, the binary under test, a place for images.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

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

/// True once [`build_programs`] need not build.
static ARE_BUILT: Mutex<bool> = Mutex::new(false);

/// Tells that the process that started this one has built the programs.
pub fn use_programs() {
    *ARE_BUILT.lock().expect("no thread panics with it") = true;
}

/// Returns true if the programs are built.
pub fn are_programs_built() -> bool {
    *ARE_BUILT.lock().expect("no thread panics with it")
}

/// Builds the programs that campaigns run, and returns the folder with them. They have the profile
/// of the tests, with all checks, and the features of the whole workspace, so cargo builds them
/// only once. A call after the first, also one by a process that [`use_programs`] has told of the
/// first, does not wait for builds that run at the time.
pub fn build_programs() -> Result<PathBuf> {
    let mut are_built = ARE_BUILT.lock().expect("no thread panics with it");
    let folder = target().join("stress");
    if *are_built {
        return Ok(folder);
    }
    let programs = "--bin parext4 --bin crash-sweep --example node";
    cargo(&format!("build --quiet --workspace --profile stress {programs}"))
        .run()
        .context("building the programs of the campaigns")?;
    *are_built = true;
    Ok(folder)
}

/// The largest size of the release binary, in bytes.
const MAX_BINARY_SIZE: u64 = 11_000_000;

/// Builds the release binary of the benchmarks and returns its path.
pub fn build_bench() -> Result<PathBuf> {
    cargo("build --quiet --release -p parext4-bench").run().context("building parext4-bench")?;
    Ok(target().join("release/parext4-bench"))
}

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

/// An empty folder on the disk that holds the build outputs (images need direct I/O, which a
/// temporary folder in memory may refuse). It goes when the value does.
pub fn scratch() -> Result<TempDir> {
    let parent = target().join("xtask");
    std::fs::create_dir_all(&parent)?;
    tempfile::tempdir_in(&parent).with_context(|| format!("no temporary folder in {}", parent.display()))
}

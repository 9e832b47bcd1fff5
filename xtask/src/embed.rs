//! The engine as a dependency of a program in another workspace.
//!
//! Checks what only such a program sees: warnings, which cargo shows because the engine is a path
//! dependency, features that the rest of this workspace enables, and the number of crates.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::report::Report;
use crate::scope::Scope;
use crate::workspace::{self, cargo, root};

/// The largest number of crates, of this workspace or not, that the engine may need.
const MAX_CRATES: usize = 48;

const PROGRAM: &str = r#"
use parext4::{Volume, VolumeOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for image in std::env::args_os().skip(1) {
        let volume = Volume::open(&image)?;
        volume.write("/notes", "remember the milk")?;
        volume.close()?;
        parext4_storage::open_volume(&image, &VolumeOptions::new().read_only(true))?;
    }
    Ok(())
}
"#;

/// Builds a program that embeds the engine, without network devices and without the checks of debug
/// builds.
pub fn run(_: Scope, report: &mut Report) -> Result<()> {
    report.case("no warnings in a program of another workspace", build);
    report.case("number of crates", count_crates);
    Ok(())
}

fn build() -> Result<()> {
    let dir = workspace::scratch()?;
    std::fs::create_dir(dir.path().join("src"))?;
    std::fs::write(dir.path().join("src/main.rs"), PROGRAM)?;
    std::fs::write(dir.path().join("Cargo.toml"), manifest(root()))?;
    std::fs::copy(root().join("Cargo.lock"), dir.path().join("Cargo.lock"))?;
    cargo("check --quiet --release --offline")
        .dir(dir.path())
        .env("RUSTFLAGS", "-D warnings")
        .env("CARGO_TARGET_DIR", workspace::target().join("embed"))
        .run()
        .map(drop)
}

fn manifest(root: &Path) -> String {
    let dependency =
        |name: &str, dir: &str| format!("{name} = {{ path = {:?} }}\n", root.join("crates").join(dir));
    let dependencies = dependency("parext4", "parext4") + &dependency("parext4-storage", "storage");
    let package = "[package]\nname = \"embedder\"\nedition = \"2024\"\n";
    format!("{package}\n[workspace]\n\n[dependencies]\n{dependencies}")
}

fn count_crates() -> Result<()> {
    let tree = cargo("tree --quiet --offline -p parext4 -e normal --prefix none --no-dedupe").run();
    let tree = tree.context("listing the dependencies of the engine")?;
    let count = tree.lines().filter(|line| !line.is_empty()).collect::<BTreeSet<_>>().len();
    ensure!(count <= MAX_CRATES, "the engine needs {count} crates, more than {MAX_CRATES}");
    Ok(())
}

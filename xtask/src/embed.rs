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

/// What a manifest says of the engine's features, the words of `cargo tree` for the same, and the
/// largest number of crates, of this workspace or not, that the engine may need then.
const FEATURES: [(&str, &str, usize); 2] =
    [("", "", 48), (", default-features = false", " --no-default-features", 36)];

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
    report.case("no warnings in a program of another workspace", || {
        FEATURES.iter().try_for_each(|(in_manifest, ..)| build(in_manifest))
    });
    report.case("number of crates", || {
        FEATURES.iter().try_for_each(|&(_, words, limit)| count_crates(words, limit))
    });
    Ok(())
}

fn build(features: &str) -> Result<()> {
    let dir = workspace::scratch()?;
    std::fs::create_dir(dir.path().join("src"))?;
    std::fs::write(dir.path().join("src/main.rs"), PROGRAM)?;
    std::fs::write(dir.path().join("Cargo.toml"), manifest(root(), features))?;
    std::fs::copy(root().join("Cargo.lock"), dir.path().join("Cargo.lock"))?;
    cargo("check --quiet --release --offline")
        .dir(dir.path())
        .env("RUSTFLAGS", "-D warnings")
        .env("CARGO_TARGET_DIR", workspace::target().join("embed"))
        .run()
        .map(drop)
}

fn manifest(root: &Path, features: &str) -> String {
    let dependency = |name: &str, dir: &str| {
        format!("{name} = {{ path = {:?}{features} }}\n", root.join("crates").join(dir))
    };
    let dependencies = dependency("parext4", "parext4") + &dependency("parext4-storage", "storage");
    let package = "[package]\nname = \"embedder\"\nedition = \"2024\"\n";
    format!("{package}\n[workspace]\n\n[dependencies]\n{dependencies}")
}

fn count_crates(features: &str, limit: usize) -> Result<()> {
    let words = "tree --quiet --offline -p parext4 -e normal --prefix none --no-dedupe".to_owned();
    let tree = cargo(&(words + features)).run();
    let tree = tree.context("listing the dependencies of the engine")?;
    let count = tree.lines().filter(|line| !line.is_empty()).collect::<BTreeSet<_>>().len();
    ensure!(count <= limit, "the engine needs {count} crates{features}, more than {limit}");
    Ok(())
}

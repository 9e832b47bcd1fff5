//! Sums of lines by module: the parts of the engine, and the other crates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::lines::Lines;

/// The least percentage of the lines of a module.
pub struct Floor {
    pub module: &'static str,
    pub percent: f64,
}

/// The lines of each module.
pub struct Modules(BTreeMap<String, Lines>);

/// Adds up the lines of files, whose paths begin at the root of the workspace. Tests and their
/// helpers are left out.
pub fn sum(files: &[(PathBuf, Lines)]) -> Modules {
    let mut modules: BTreeMap<String, Lines> = BTreeMap::new();
    for (path, lines) in files {
        if let Some(module) = module(path) {
            let sum = modules.entry(module).or_default();
            sum.all += lines.all;
            sum.ran += lines.ran;
        }
    }
    Modules(modules)
}

/// Returns the module of a source file: the crate, or the part of the engine. `None` for tests.
fn module(path: &Path) -> Option<String> {
    let parts: Vec<_> = path.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let is_test = |part: &&str| part.trim_end_matches(".rs").ends_with("tests");
    match *parts.as_slice() {
        ["crates", _, "src", ref rest @ ..] if rest.iter().any(is_test) => None,
        ["crates", "parext4", "src", part, ..] => Some(part.trim_end_matches(".rs").to_owned()),
        ["crates", name, "src", ..] => Some(name.to_owned()),
        _ => None,
    }
}

impl Lines {
    fn percent(self) -> f64 {
        100.0 * self.ran as f64 / self.all.max(1) as f64
    }
}

impl Modules {
    /// Prints one line for each module.
    pub fn print(&self) {
        for (module, lines) in &self.0 {
            println!("  {module:<20}{:>8} lines  {:5.1} %", lines.all, lines.percent());
        }
    }

    /// Fails if a module is below its floor.
    pub fn check(&self, floor: &Floor) -> Result<()> {
        let lines = self.0.get(floor.module).context("no lines")?;
        let percent = lines.percent();
        ensure!(
            percent >= floor.percent,
            "{percent:.1} % of {} lines ran, less than {} %",
            lines.all,
            floor.percent
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_parts_of_the_engine_or_to_crates() {
        let module = |path: &str| module(Path::new(path));
        assert_eq!(module("crates/parext4/src/journal/gate.rs"), Some("journal".into()));
        assert_eq!(module("crates/parext4/src/verity.rs"), Some("verity".into()));
        assert_eq!(module("crates/mount/src/server/mod.rs"), Some("mount".into()));
        assert_eq!(module("crates/mount/src/server/tests.rs"), None);
        assert_eq!(module("crates/parext4/tests/stress/main.rs"), None);
        assert_eq!(module("testing/testkit/src/rng.rs"), None);
    }

    #[test]
    fn a_module_below_its_floor_fails() {
        let file = |path, ran| (PathBuf::from(path), Lines { all: 10, ran });
        let modules = sum(&[file("crates/mount/src/a.rs", 10), file("crates/mount/src/b.rs", 7)]);
        assert!(modules.check(&Floor { module: "mount", percent: 85.0 }).is_ok());
        assert!(modules.check(&Floor { module: "mount", percent: 90.0 }).is_err());
        assert!(modules.check(&Floor { module: "format", percent: 1.0 }).is_err());
    }
}

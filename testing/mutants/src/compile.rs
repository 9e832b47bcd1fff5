//! Builds the test programs of the mutated tree, and leaves out the mutants that do not compile.
//!
//! An error of the compiler names the bytes of the source. The mutant to which they belong is left
//! out, and the build is repeated. `unviable` keeps the list for the next run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::areas::{AREAS, Area, Build};
use crate::catalogue::Catalogue;
use crate::mutant::Key;
use crate::render::Rendered;
use crate::tree;

/// The mutated tree of a workspace, and the folders of its build outputs.
pub struct Workshop<'a> {
    /// The root of the workspace.
    pub root: &'a Path,
    /// The folder of the tree and the build outputs.
    pub folder: PathBuf,
}

/// A test program that was built.
pub struct Executable {
    /// The path.
    pub path: PathBuf,
    /// The folder in which cargo runs it.
    pub folder: PathBuf,
    /// The name of the integration test; empty for the unit tests.
    pub name: String,
}

/// The mutants that do not compile, and the test programs with all other mutants.
pub struct Built {
    /// The mutants that do not compile.
    pub unviable: BTreeSet<Key>,
    /// The programs, by package and build.
    pub programs: BTreeMap<(&'static str, Build), Vec<Executable>>,
}

impl Workshop<'_> {
    /// Builds the test programs of `areas`.
    ///
    /// # Errors
    /// If the build fails for another reason than a mutant.
    pub fn build(&self, catalogue: &Catalogue, areas: &[&Area]) -> Result<Built> {
        let mut unviable = self.read_unviable(catalogue);
        loop {
            let rendered = catalogue.render(&unviable);
            self.write(&rendered)?;
            let (mut programs, mut blamed) = (BTreeMap::new(), BTreeSet::new());
            for (package, build) in wanted(areas) {
                match self.build_one(areas, package, build)? {
                    Ok(executables) => drop(programs.insert((package, build), executables)),
                    Err(errors) => blamed.extend(blame(&errors, &rendered)?),
                }
                if !blamed.is_empty() {
                    break;
                }
            }
            if blamed.is_empty() {
                return Ok(Built { unviable, programs });
            }
            for number in blamed {
                let mutant = catalogue.mutant(number)?;
                println!("does not compile: {mutant}");
                unviable.insert(mutant.key());
            }
            self.write_unviable(catalogue, &unviable)?;
        }
    }

    fn write(&self, rendered: &BTreeMap<String, Rendered>) -> Result<()> {
        let mut changed: BTreeMap<String, String> =
            rendered.iter().map(|(file, rendered)| (file.clone(), rendered.text.clone())).collect();
        for Area { package, .. } in AREAS {
            let source = |name: &str| format!("crates/{package}/src/{name}.rs");
            let lib = fs::read_to_string(self.root.join(source("lib")))?;
            changed.insert(source("lib"), lib + "\nmod mutant_switch;\n");
            changed.insert(source("mutant_switch"), include_str!("switch.rs").to_owned());
        }
        tree::copy(self.root, &self.folder.join("tree"), &changed).context("copying the workspace")
    }

    /// Builds the test programs of a package. Returns the compiler's messages if a source has
    /// errors.
    fn build_one(
        &self,
        areas: &[&Area],
        package: &'static str,
        build: Build,
    ) -> Result<Result<Vec<Executable>, Vec<Value>>> {
        let programs = areas.iter().filter(|area| area.package == package).flat_map(|area| area.programs);
        let names: BTreeSet<_> =
            programs.filter(|program| program.build == build).map(|program| program.name).collect();
        let mut command = self.cargo(build);
        let profile = if build == Build::Plain { "stress" } else { "release" };
        command.args([
            "test",
            "--no-run",
            "--quiet",
            "--message-format=json",
            "--profile",
            profile,
            "-p",
            package,
        ]);
        for name in names {
            if name.is_empty() {
                command.arg("--lib")
            } else {
                command.args(["--test", name])
            };
        }
        println!("building {package}, {build:?}");
        let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if output.status.success() {
            return Ok(Ok(messages.iter().filter_map(executable).collect()));
        }
        let errors: Vec<Value> =
            messages.into_iter().filter(|message| message["message"]["level"] == "error").collect();
        ensure!(!errors.is_empty(), "the build of the mutated tree fails");
        Ok(Err(errors))
    }

    fn cargo(&self, build: Build) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let of_this =
            |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_this)) {
            command.env_remove(name);
        }
        command.current_dir(self.folder.join("tree")).stdin(Stdio::null());
        // Shorter builds.
        command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_STRESS_DEBUG", "false");
        let (flags, folder) = match build {
            Build::Plain => ("--cap-lints warn", "plain"),
            Build::Shuttle => ("--cap-lints warn --cfg shuttle", "shuttle"),
        };
        command.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", self.folder.join(folder));
        command
    }

    /// Returns the mutants that did not compile in the last run, of sources that have not changed
    /// since.
    fn read_unviable(&self, catalogue: &Catalogue) -> BTreeSet<Key> {
        let text = fs::read_to_string(self.folder.join("unviable")).unwrap_or_default();
        let known = |line: &str| {
            let (fingerprint, key) = line.split_once('\t')?;
            let key: Key = key.parse().ok()?;
            (catalogue.fingerprint(&key.file)?.to_string() == fingerprint).then_some(key)
        };
        text.lines().filter_map(known).collect()
    }

    fn write_unviable(&self, catalogue: &Catalogue, unviable: &BTreeSet<Key>) -> Result<()> {
        let line = |key: &Key| Some(format!("{}\t{key}\n", catalogue.fingerprint(&key.file)?));
        let text: String = unviable.iter().filter_map(line).collect();
        fs::write(self.folder.join("unviable"), text).context("the list of mutants that do not compile")
    }
}

/// Returns the packages and builds that the areas need.
fn wanted(areas: &[&Area]) -> BTreeSet<(&'static str, Build)> {
    areas.iter().flat_map(|area| area.programs.iter().map(|program| (area.package, program.build))).collect()
}

/// Returns the test program of a message of cargo, if it is about one.
fn executable(message: &Value) -> Option<Executable> {
    let target = &message["target"];
    let is_unit = target["kind"][0] != "test";
    message["profile"]["test"].as_bool().filter(|is_test| *is_test)?;
    Some(Executable {
        path: message["executable"].as_str()?.into(),
        folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
        name: if is_unit { String::new() } else { target["name"].as_str()?.to_owned() },
    })
}

/// Returns the mutants to which the errors belong.
fn blame(errors: &[Value], rendered: &BTreeMap<String, Rendered>) -> Result<BTreeSet<u32>> {
    let mut blamed = BTreeSet::new();
    for error in errors {
        let message = &error["message"];
        let mut spans: Vec<&Value> = message["spans"].as_array().into_iter().flatten().collect();
        spans.sort_by_key(|span| span["is_primary"] != true);
        let mutants = spans.into_iter().filter_map(|span| {
            let rendered = rendered.get(span["file_name"].as_str()?)?;
            let byte = |name: &str| span[name].as_u64().and_then(|byte| usize::try_from(byte).ok());
            Some(rendered.blame(&(byte("byte_start")?..byte("byte_end")?)))
        });
        match mutants.filter(|mutants| !mutants.is_empty()).min_by_key(BTreeSet::len) {
            Some(mutants) => blamed.extend(mutants),
            None => println!("{}", message["rendered"].as_str().unwrap_or_default()),
        }
    }
    if blamed.is_empty() {
        bail!("the mutated tree does not compile, and no mutant is the cause")
    }
    Ok(blamed)
}

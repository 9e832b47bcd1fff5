//! The steps that are cargo commands, and [`fsx`].

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::campaign::{faults, simulate};
use crate::command::Cmd;
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace::cargo;
use crate::{cargo_test, tidy};

/// Test programs that wait most of their time, for other machines and for servers that come back.
/// They run beside the others.
const WAITING: &[&str] = &["ceph", "mmp", "nbd", "network"];

pub(super) fn tidy(_: Scope, report: &mut Report) -> Result<()> {
    tidy::run(report)
}

pub(super) fn fmt(_: Scope, report: &mut Report) -> Result<()> {
    plain("cargo fmt --all --check", cargo("fmt --all --check"), report)
}

pub(super) fn clippy(_: Scope, report: &mut Report) -> Result<()> {
    plain("cargo clippy", cargo("clippy --quiet --workspace --all-targets -- -D warnings"), report)
}

/// A command that passes or fails as a whole.
fn plain(name: &str, command: Cmd, report: &mut Report) -> Result<()> {
    report.case(name, || command.run().map(drop));
    Ok(())
}

pub(super) fn build(_: Scope, report: &mut Report) -> Result<()> {
    plain("cargo test --no-run", workspace_tests("--lib --bins --tests --no-run --quiet"), report)
}

/// The tests of all packages but the [`tools`] that `words` select. Packages alone would have other
/// features, and be built again.
fn workspace_tests(words: &str) -> Cmd {
    cargo("test --workspace --exclude xtask --exclude mutants --profile stress --no-fail-fast").args(words)
}

/// Runs the tests of the programs that test. They share what is built with this program, and
/// nothing with the others.
pub(super) fn tools(_: Scope, report: &mut Report) -> Result<()> {
    cargo_test::run(cargo("test --package xtask --package mutants --no-fail-fast"), "tools", report)
}

/// Runs the unit tests of all packages, and the test programs that the step `stress` does not run.
pub(super) fn unit(scope: Scope, report: &mut Report) -> Result<()> {
    cargo_test::run(workspace_tests("--lib --bins"), "unit", report)?;
    let programs = &test_programs(|_| true)? - &engine_programs()?;
    run_programs(&|| cargo_test::scaled(workspace_tests(""), scope), "unit", programs, None, report)
}

/// Returns the names of the test programs of the engine. Programs of these names in other packages
/// run with them.
fn engine_programs() -> Result<BTreeSet<String>> {
    test_programs(|package| package == "parext4")
}

/// Builds and runs test programs, without the tests whose names contain `skip`. The programs that
/// [`WAITING`] lists run beside the rest, of which two run at a time, because single tests of each
/// keep no processor busy.
fn run_programs(
    command: &dyn Fn() -> Cmd,
    name: &str,
    programs: BTreeSet<String>,
    skip: Option<&str>,
    report: &mut Report,
) -> Result<()> {
    let select = |programs: &mut dyn Iterator<Item = &String>| {
        programs.fold(command(), |command, program| command.arg("--test").arg(program))
    };
    select(&mut programs.iter()).args("--no-run --quiet").run().context("building the tests")?;
    let (waiting, others): (Vec<_>, Vec<_>) =
        programs.iter().partition(|program| WAITING.contains(&program.as_str()));
    let together = [waiting, every_second(&others, 0), every_second(&others, 1)];
    let commands = together.iter().filter(|programs| !programs.is_empty()).map(|programs| {
        let command = select(&mut programs.iter().copied());
        skip.iter().fold(command, |command, skip| command.args("-- --skip").arg(skip))
    });
    cargo_test::run_all(commands.collect(), name, report)
}

fn every_second<'a>(programs: &[&'a String], first: usize) -> Vec<&'a String> {
    programs.iter().skip(first).step_by(2).copied().collect()
}

/// Returns the names of the test programs of the packages whose names `of` selects.
fn test_programs(of: fn(&str) -> bool) -> Result<BTreeSet<String>> {
    let metadata = cargo("metadata --no-deps --format-version 1 --quiet").run()?;
    let metadata: Value = serde_json::from_str(&metadata).context("the output of cargo metadata")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|package| package["name"].as_str().is_some_and(of))
        .flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test");
    Ok(tests.filter_map(|target| target["name"].as_str()).map(str::to_owned).collect())
}

pub(super) fn doc(_: Scope, report: &mut Report) -> Result<()> {
    let command = cargo("doc --quiet --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings");
    plain("cargo doc", command, report)
}

pub(super) fn examples(_: Scope, report: &mut Report) -> Result<()> {
    cargo_test::run(cargo("test --workspace --profile stress --doc --no-fail-fast"), "examples", report)
}

pub(super) fn stress(scope: Scope, report: &mut Report) -> Result<()> {
    let command = || {
        cargo_test::scaled(
            workspace_tests("").env("PAREXT4_MEMORY_MIB", "512").env("PAREXT4_FSX_OPS", "20000"),
            scope,
        )
    };
    // The fault sweep is a step of its own.
    run_programs(&command, "stress", engine_programs()?, Some(faults::ALL), report)
}

/// Random operations on one file, `ops` in each configuration of blocks and memory.
pub fn fsx(ops: u64, report: &mut Report) -> Result<()> {
    let command = workspace_tests("--test fsx");
    cargo_test::run(command.env("PAREXT4_FSX_OPS", ops.to_string()), "fsx", report)
}

pub(super) fn shuttle(scope: Scope, report: &mut Report) -> Result<()> {
    let words = "--no-fail-fast --test shuttle*";
    let models =
        if scope == Scope::Quick { simulate::models_of_range_lock(words) } else { simulate::models(words) };
    cargo_test::run(cargo_test::scaled(models, scope), "shuttle", report)
}

//! `cargo xtask tidy`: reads the sources of all crates and reports what breaks the rules of the house.
//!
//! Each rule is a file of its own that turns sources into [`Finding`]s. Nothing is built and nothing is changed.

mod citations;
mod files;
mod finding;
mod locks;
mod modules;
mod names;
mod prose;
mod source;

pub use finding::Finding;

use std::collections::BTreeMap;

use anyhow::Result;

use crate::report::Report;
use crate::workspace::root;
use finding::fail_on;
use source::Tree;

/// Runs every rule; each is a case of the report.
pub fn run(report: &mut Report) -> Result<()> {
    let tree = Tree::read(root())?;
    let crates = tree.crates();
    report.case("modules", || fail_on(modules::check(&tree, &crates)));
    report.case("locks", || fail_on(locks::check(&crates)));
    let citations = citations::check(&tree);
    citations.uncited.iter().for_each(|row| println!("  note  no comment cites {row}"));
    report.case("citations", || fail_on(citations.findings));
    report.case("names", || fail_on(names::check(&tree)));
    report.case("files", || fail_on(files::check(&tree.rust)));
    report.case("phrases", || fail_on(prose::check(&tree)));
    Ok(())
}

/// Prints every phrase that the prose rules exclude in `paths` (all files if empty), and the number of them by file.
/// Returns true if there is none.
pub fn all_prose(paths: &[String]) -> Result<bool> {
    let tree = Tree::read(root())?;
    let mut findings = prose::all(&tree);
    findings.retain(|finding| {
        paths.is_empty() || paths.iter().any(|path| finding.file.starts_with(path.as_str()))
    });
    findings.iter().for_each(|finding| println!("{finding}"));
    let mut counts = BTreeMap::<&str, usize>::new();
    findings.iter().for_each(|finding| *counts.entry(&finding.file).or_default() += 1);
    counts.iter().for_each(|(file, count)| println!("{count:6}  {file}"));
    println!("{:6}  phrases in {} of {} files", findings.len(), counts.len(), tree.len());
    Ok(findings.is_empty())
}

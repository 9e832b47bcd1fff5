//! `cargo xtask tidy`: reads the sources and manifests of all crates and reports what breaks the
//! rules of the project.
//!
//! Each rule is a file of its own that turns sources into [`Finding`]s. Nothing is built and
//! nothing is changed.

mod citations;
mod columns;
mod files;
mod finding;
mod locks;
mod modules;
mod names;
mod packages;
mod prose;
mod source;
mod unsafe_code;

pub use finding::Finding;

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
    report.case("unsafe code", || fail_on(unsafe_code::check(&tree)));
    report.case("packages", || fail_on(packages::check(&packages::read()?)));
    report.case("files", || fail_on(files::check(&tree.rust)));
    report.case("columns", || fail_on(columns::check(&tree)));
    report.case("phrases", || fail_on(prose::check(&tree)));
    Ok(())
}

//! cargo-deny: licences, duplicates and sources of the dependencies.

use anyhow::Result;

use crate::report::Report;
use crate::scope::Scope;
use crate::workspace::cargo;

/// Runs cargo-deny without its check of advisories, which needs the network. Builds cargo-deny
/// first if it is missing, which takes minutes.
pub fn run(_: Scope, report: &mut Report) -> Result<()> {
    if let Err(error) = install() {
        report.skip("deny", &format!("{error:#}"));
        return Ok(());
    }
    let check = cargo("deny --all-features --offline check bans licenses sources");
    report.case("cargo deny", || check.run().map(drop));
    Ok(())
}

fn install() -> Result<()> {
    if cargo("deny --version").run().is_err() {
        println!("installing cargo-deny");
        cargo("install cargo-deny --locked").run()?;
    }
    // cargo-deny reads the dependencies of every target, and a build fetches only its own.
    cargo("fetch --locked").run()?;
    Ok(())
}

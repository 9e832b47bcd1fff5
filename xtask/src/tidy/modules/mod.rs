//! Rules on the modules of each crate: a declared order, and no cycles.

mod crate_tree;
mod cycles;
mod declared;
mod order;
mod reader;

use super::Finding;
use super::tree::Tree;
use crate_tree::CrateTree;

/// The results of the rules on modules.
#[derive(Default)]
pub struct Outcome {
    /// Imports against the declared order, and cycles.
    pub findings: Vec<Finding>,
    /// Crates without a declared order, which are not checked.
    pub unchecked: Vec<String>,
}

/// Checks every crate whose order is declared.
pub fn check(tree: &Tree) -> Outcome {
    let document =
        tree.markdown.iter().find(|(path, _)| path == declared::FILE).map(|(_, text)| text.as_str());
    let orders = declared::read(document.unwrap_or_default());
    let mut outcome = Outcome::default();
    for krate in crates(tree) {
        let name = krate.rsplit('/').next().unwrap_or(&krate);
        let Some(order) = orders.get(name) else {
            outcome.unchecked.push(krate);
            continue;
        };
        let modules = CrateTree::read(&format!("{krate}/src/"), tree.rust.iter());
        let edges = modules.edges();
        outcome.findings.extend(order::check(name, &modules, &edges, order));
        outcome.findings.extend(cycles::check(&modules, &edges));
    }
    outcome
}

/// The folders of all crates.
fn crates(tree: &Tree) -> Vec<String> {
    let folders = tree.rust.iter().filter_map(|rust| rust.path.split_once("/src/"));
    let mut crates: Vec<String> = folders.map(|(krate, _)| krate.to_owned()).collect();
    crates.dedup();
    crates
}

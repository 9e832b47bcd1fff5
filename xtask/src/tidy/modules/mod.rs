//! Rules on the modules of each crate: a declared order, and no cycles.

mod cycles;
mod declared;
mod order;

use super::Finding;
use super::source::{CrateTree, Tree};

/// The results of the rules on modules.
#[derive(Default)]
pub struct Outcome {
    /// Imports against the declared order, and cycles.
    pub findings: Vec<Finding>,
    /// Crates without a declared order, which are not checked.
    pub unchecked: Vec<String>,
}

/// Checks every crate whose order is declared.
pub fn check(tree: &Tree, crates: &[CrateTree]) -> Outcome {
    let orders = declared::read(tree.document(declared::FILE));
    let mut outcome = Outcome::default();
    for modules in crates {
        let Some(order) = orders.get(modules.name()) else {
            outcome.unchecked.push(modules.folder.clone());
            continue;
        };
        let edges = modules.edges();
        outcome.findings.extend(order::check(modules, &edges, order));
        outcome.findings.extend(cycles::check(modules, &edges));
    }
    outcome
}

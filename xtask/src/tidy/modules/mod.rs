//! Rules on the modules of each crate: a declared order of imports and calls, and no cycles.

mod calls;
mod cycles;
mod declared;
mod order;

use super::Finding;
use super::source::{CrateTree, Tree};

/// Checks every crate. A crate whose order is not declared is a finding of its own.
pub fn check(tree: &Tree, crates: &[CrateTree]) -> Vec<Finding> {
    let orders = declared::read(tree.document(declared::FILE));
    let mut findings = Vec::new();
    for modules in crates {
        let edges = modules.edges();
        match orders.get(modules.name()) {
            Some(order) => {
                findings.extend(order::check(modules, &edges, order));
                let used: Vec<_> = crates.iter().filter(|other| modules.imports(other)).collect();
                findings.extend(calls::check(modules, order, &used));
            }
            None => findings.push(order::missing(modules)),
        }
        findings.extend(cycles::check(modules, &edges));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{Tree, check};

    #[test]
    fn a_crate_without_a_declared_order_is_found() {
        let rust = crate::tidy::source::Rust::read("crates/a/src/lib.rs", "mod b;").unwrap();
        let tree = Tree { rust: vec![rust], ..Tree::default() };
        let found = check(&tree, &tree.crates());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("```modules a"), "{found:?}");
    }
}

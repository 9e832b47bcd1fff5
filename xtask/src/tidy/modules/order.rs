//! Rules: a module imports only from modules on lower lines of the declared order, which names
//! every module; and from a module with declared importers, only these import.

use std::collections::{BTreeMap, BTreeSet};

use super::declared::{FILE, Order};
use crate::tidy::Finding;
use crate::tidy::source::{CrateTree, Edge, Path};

/// Modules that may stay undeclared: like the root of the crate, they may use every module.
const EXEMPT: &[&str] = &["tests", "models"];

/// Returns a finding for each import of the crate against `order`, and for each module missing in
/// either.
pub fn check(tree: &CrateTree, edges: &[Edge], order: &Order) -> Vec<Finding> {
    let mut findings = unknown(tree, order);
    let mut outers: Vec<Path> = order.layers.keys().map(Path::parent).collect();
    outers.push(Path::default());
    outers.sort();
    outers.dedup();
    for outer in outers {
        findings.extend(undeclared(tree, &outer, order));
        let inside = tree.edges_inside(&outer, edges);
        findings.extend(against(&inside, order));
        findings.extend(not_permitted(&inside, order));
    }
    findings
}

/// The finding for a crate without a declared order.
pub fn missing(tree: &CrateTree) -> Finding {
    let message =
        format!("no block \"```modules {}\" declares the order of {}; add one", tree.name(), tree.folder);
    finding(FILE, 1, message)
}

/// Declared modules that do not exist.
fn unknown(tree: &CrateTree, order: &Order) -> Vec<Finding> {
    let unknown = order.layers.iter().filter(|(module, _)| {
        let is_root = ["lib", "main"].iter().any(|root| **module == Path::parse(root));
        !is_root && !is_exempt(module) && !tree.modules.contains(module)
    });
    let message = |module| format!("{} has no module {module}; delete the name or correct it", tree.name());
    unknown.map(|(module, line)| finding(FILE, *line, message(module))).collect()
}

/// Modules directly inside `outer` that are not declared.
fn undeclared(tree: &CrateTree, outer: &Path, order: &Order) -> Vec<Finding> {
    let children = tree.children(outer).into_iter();
    let undeclared = children.filter(|module| !is_exempt(module) && !order.layers.contains_key(module));
    let message = |module| {
        format!("module {module} of {} is not declared; put it on the line of its layer", tree.name())
    };
    undeclared.map(|module| finding(FILE, order.line, message(module))).collect()
}

/// Imports from the same line or from a higher one. Of each pair of modules, the first line that
/// does so is reported.
fn against(edges: &[Edge], order: &Order) -> Vec<Finding> {
    let mut pairs = BTreeMap::<(&Path, &Path), (&Edge, usize)>::new();
    for edge in edges {
        if let (Some(from), Some(to)) = (order.layers.get(&edge.from), order.layers.get(&edge.to))
            && to <= from
        {
            pairs.entry((&edge.from, &edge.to)).or_insert((edge, 0)).1 += 1;
        }
    }
    let findings = pairs.into_iter().map(|((from, to), (edge, count))| {
        let (low, high) = (order.layers[from], order.layers[to]);
        let place = if low == high { "on the same line" } else { "above it" };
        let message = format!(
            "{from} uses {to}, which {FILE} declares {place} (lines {low} and {high}; {count} references); \
             move the item to a lower module or pass it in"
        );
        finding(&edge.file, edge.line, message)
    });
    findings.collect()
}

/// Imports from a module by a module that is not among its declared importers.
fn not_permitted(edges: &[Edge], order: &Order) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let refused = edges.iter().filter(|edge| {
        let importers = order.importers.get(&edge.to);
        !is_exempt(&edge.from)
            && importers.is_some_and(|importers| !importers.contains(&edge.from))
            && seen.insert((&edge.from, &edge.to))
    });
    let message = |edge: &Edge| {
        format!("{} uses {}, which {FILE} permits only to other modules; use these", edge.from, edge.to)
    };
    refused.map(|edge| finding(&edge.file, edge.line, message(edge))).collect()
}

fn is_exempt(module: &Path) -> bool {
    EXEMPT.iter().any(|name| *module == Path::parse(name))
}

fn finding(file: &str, line: usize, message: String) -> Finding {
    Finding { file: file.to_owned(), line, rule: "order", message }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::modules::declared;
    use crate::tidy::source::{CrateTree, Rust};

    /// Checks a crate with the modules `top`, `middle`, `beside` and `low` in this order of layers.
    fn findings(declared: &str, files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| Rust::read(path, text).unwrap()).collect();
        let tree = CrateTree::read("x", &files);
        let orders = declared::read(&format!("```modules x\n{declared}\n```\n"));
        check(&tree, &tree.edges(), &orders["x"]).iter().map(ToString::to_string).collect()
    }

    const ROOT: (&str, &str) =
        ("x/src/lib.rs", "mod top; mod middle; mod beside; mod low;\npub use low::Low;");
    const ORDER: &str = "lib\ntop\nmiddle beside\nlow";

    #[test]
    fn imports_from_lower_lines_pass() {
        let found = findings(
            ORDER,
            &[ROOT, ("x/src/top.rs", "use crate::{middle::M, Low};"), ("x/src/beside.rs", "use super::low;")],
        );
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn an_import_from_a_higher_line_is_found() {
        let found = findings(ORDER, &[ROOT, ("x/src/low.rs", "\nuse crate::top::T;\nuse crate::top::U;")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("x/src/low.rs:2: order: low uses top"), "{found:?}");
        assert!(found[0].contains("2 references"), "{found:?}");
    }

    #[test]
    fn an_import_from_the_same_line_is_found() {
        let found = findings(ORDER, &[ROOT, ("x/src/middle.rs", "fn f() { crate::beside::f() }")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("on the same line"), "{found:?}");
    }

    #[test]
    fn an_import_by_a_module_that_is_not_permitted_is_found() {
        let files = [ROOT, ("x/src/top.rs", "use crate::low;"), ("x/src/middle.rs", "use crate::low;")];
        let found = findings("lib\ntop\nmiddle beside\nlow<-middle", &files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("x/src/top.rs:1: order: top uses low"), "{found:?}");
    }

    #[test]
    fn missing_modules_are_found_on_either_side() {
        let found = findings("top\nmiddle\nlow gone", &[ROOT]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("no module gone") && found[1].contains("module beside"), "{found:?}");
    }

    #[test]
    fn modules_inside_a_module_have_an_order_too() {
        let files = [
            ("x/src/lib.rs", "mod a;"),
            ("x/src/a/mod.rs", "mod up; mod down;"),
            ("x/src/a/down.rs", "use super::up::U;"),
        ];
        let found = findings("a\na::up\na::down", &files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("x/src/a/down.rs:1: order: a::down uses a::up"), "{found:?}");
        assert!(findings("a", &files).is_empty());
    }
}

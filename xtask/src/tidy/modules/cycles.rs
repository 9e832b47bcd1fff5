//! Rule: no cycle between the modules of a crate, nor between the modules inside one module.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::tidy::Finding;
use crate::tidy::source::{CrateTree, Edge, Path};

/// Returns a finding for each set of modules that all reach each other, with a shortest cycle among
/// them.
pub fn check(tree: &CrateTree, edges: &[Edge]) -> Vec<Finding> {
    let outers = tree.modules.iter().cloned().chain([Path::default()]);
    outers.flat_map(|outer| inside(&tree.edges_inside(&outer, edges))).collect()
}

fn inside(edges: &[Edge]) -> Vec<Finding> {
    let mut graph = BTreeMap::<&Path, BTreeMap<&Path, &Edge>>::new();
    for edge in edges {
        graph.entry(&edge.from).or_default().entry(&edge.to).or_insert(edge);
    }
    let mut reported = BTreeSet::new();
    let mut findings = Vec::new();
    for &start in graph.keys() {
        if reported.contains(start) {
            continue;
        }
        if let Some(cycle) = shortest_cycle(&graph, start) {
            reported.extend(knot(&graph, start));
            findings.push(finding(&cycle, knot(&graph, start).len()));
        }
    }
    findings
}

type Graph<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, &'a Edge>>;

/// The edges of a shortest cycle through `start`.
fn shortest_cycle<'a>(graph: &Graph<'a>, start: &'a Path) -> Option<Vec<&'a Edge>> {
    let mut reached_by = BTreeMap::<&Path, &Edge>::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for (&to, &edge) in graph.get(module).into_iter().flatten() {
            if reached_by.contains_key(to) {
                continue;
            }
            reached_by.insert(to, edge);
            queue.push_back(to);
        }
    }
    let mut cycle = vec![*reached_by.get(start)?];
    while let Some(first) = cycle.last().filter(|edge| edge.from != *start) {
        cycle.push(reached_by.get(&first.from)?);
    }
    cycle.reverse();
    Some(cycle)
}

/// The modules that reach `start` and are reached from it.
fn knot<'a>(graph: &Graph<'a>, start: &'a Path) -> BTreeSet<&'a Path> {
    let reached = |start: &'a Path| {
        let mut reached = BTreeSet::new();
        let mut stack = vec![start];
        while let Some(module) = stack.pop() {
            let next = graph.get(module).into_iter().flat_map(BTreeMap::keys);
            stack.extend(next.filter(|&&next| reached.insert(next)));
        }
        reached
    };
    reached(start).into_iter().filter(|&module| reached(module).contains(start)).collect()
}

fn finding(cycle: &[&Edge], modules: usize) -> Finding {
    let steps =
        cycle.iter().map(|edge| format!("{} uses {} ({}:{})", edge.from, edge.to, edge.file, edge.line));
    let steps = steps.collect::<Vec<_>>().join(", ");
    let message = format!("{modules} modules use each other: {steps}; move what both need to a lower module");
    Finding { file: cycle[0].file.clone(), line: cycle[0].line, rule: "cycle", message }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::source::{CrateTree, Rust};

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| Rust::read(path, text).unwrap()).collect();
        let tree = CrateTree::read("x", &files);
        check(&tree, &tree.edges()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cycle_of_three_modules_is_found_once() {
        let found = findings(&[
            ("x/src/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("x/src/a.rs", "use crate::d::D;\nuse crate::b::B;"),
            ("x/src/b.rs", "fn f() { crate::c::f() }"),
            ("x/src/c.rs", "use crate::a::A;"),
            ("x/src/d.rs", ""),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("x/src/a.rs:2: cycle: 3 modules use each other: a uses b"), "{found:?}");
    }

    #[test]
    fn a_cycle_inside_a_module_is_found() {
        let found = findings(&[
            ("x/src/lib.rs", "mod a;"),
            ("x/src/a/mod.rs", "mod b; mod c;"),
            ("x/src/a/b.rs", "use super::c::C;"),
            ("x/src/a/c.rs", "use super::b::B;"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_module_and_its_own_parts_may_use_each_other() {
        let found = findings(&[
            ("x/src/lib.rs", "mod a; pub use a::A;"),
            ("x/src/a/mod.rs", "mod b; use b::B;"),
            ("x/src/a/b.rs", "use super::A; use crate::A as Root;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}

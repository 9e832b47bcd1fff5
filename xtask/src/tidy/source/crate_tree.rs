//! The modules of one crate, and the references between them.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{self, Use};
use super::method_index::MethodIndex;
use super::methods::{self, Call};
use super::path::Path;
use super::rust::Rust;

/// One module refers to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The referring module.
    pub from: Path,
    /// The module that defines what is referred to.
    pub to: Path,
    /// The referring file.
    pub file: String,
    /// The referring line.
    pub line: usize,
}

/// The modules of a crate.
#[derive(Debug, Default)]
pub struct CrateTree {
    /// The folder of the crate, relative to the root of the workspace.
    pub folder: String,
    /// All modules except the root and test modules.
    pub modules: BTreeSet<Path>,
    /// Imports by module and name.
    names: BTreeMap<(Path, String), Path>,
    /// Imports and paths in code, each with its file.
    pub uses: Vec<(String, Use)>,
    /// Calls of methods, each with its file.
    pub calls: Vec<(String, Call)>,
    /// The methods that its modules define.
    pub methods: MethodIndex,
}

impl CrateTree {
    /// Reads the modules of the crate in `folder` from the files in its `src/`.
    pub fn read<'a>(folder: &str, files: impl IntoIterator<Item = &'a Rust>) -> Self {
        let mut tree = Self { folder: folder.to_owned(), ..Self::default() };
        let src = format!("{folder}/src/");
        let mut test_modules = Vec::new();
        for rust in files {
            let Some(file) = rust.path.strip_prefix(&src) else { continue };
            let contents = imports::read(&Path::of_file(file), rust.tokens.clone());
            tree.modules.extend(contents.modules);
            test_modules.extend(contents.test_modules);
            tree.uses.extend(contents.uses.into_iter().map(|found| (rust.path.clone(), found)));
            let methods = methods::read(&Path::of_file(file), rust.tokens.clone());
            tree.methods.add(&methods);
            tree.calls.extend(methods.calls.into_iter().map(|call| (rust.path.clone(), call)));
        }
        let is_test = |module: &Path| test_modules.iter().any(|test| module.starts_with(test));
        tree.modules.retain(|module| !is_test(module));
        tree.uses.retain(|(_, found)| !is_test(&found.from));
        tree.calls.retain(|(_, call)| !is_test(&call.from));
        for (_, found) in &tree.uses {
            if let Some(name) = &found.name {
                tree.names.entry((found.from.clone(), name.clone())).or_insert(found.to.clone());
            }
        }
        tree
    }

    /// The name of the folder.
    pub fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or(&self.folder)
    }

    /// Returns true if code of this crate names the other one.
    pub fn imports(&self, other: &Self) -> bool {
        let name = other.name().replace('-', "_");
        let is_named = |first: &String| first.strip_prefix("parext4_").unwrap_or(first) == name;
        self.uses.iter().any(|(_, found)| found.relative().and_then(<[_]>::first).is_some_and(is_named))
    }

    /// The references between modules, in the order of the sources.
    pub fn edges(&self) -> Vec<Edge> {
        let edges = self.uses.iter().filter_map(|(file, found)| {
            let to = self.defining_module(&found.to, 0)?;
            Some(Edge { from: found.from.clone(), to, file: file.clone(), line: found.line })
        });
        edges.filter(|edge| edge.from != edge.to).collect()
    }

    /// The modules directly inside `outer`.
    pub fn children(&self, outer: &Path) -> Vec<&Path> {
        self.modules
            .iter()
            .filter(|module| module.len() == outer.len() + 1 && module.starts_with(outer))
            .collect()
    }

    /// The edges between the modules directly inside `outer`. An edge of a module further inside
    /// counts as one of the module around it.
    pub fn edges_inside(&self, outer: &Path, edges: &[Edge]) -> Vec<Edge> {
        let len = outer.len() + 1;
        let inside = edges.iter().filter(|edge| {
            [&edge.from, &edge.to].iter().all(|module| module.len() >= len && module.starts_with(outer))
        });
        let lifted =
            inside.map(|edge| Edge { from: edge.from.prefix(len), to: edge.to.prefix(len), ..edge.clone() });
        lifted.filter(|edge| edge.from != edge.to).collect()
    }

    /// The module that defines the item at `path`: follows imports, and stops at the first segment
    /// that is neither a module nor an import. None if the first segment names another crate.
    fn defining_module(&self, path: &Path, depth: usize) -> Option<Path> {
        // A bound for imports in a circle, which the compiler refuses.
        if depth > 16 {
            return None;
        }
        let mut at = Path::default();
        for (index, segment) in path.0.iter().enumerate() {
            let child = at.child(segment);
            if self.modules.contains(&child) {
                at = child;
                continue;
            }
            let rest = &path.0[index + 1..];
            let imported = self.names.get(&(at.clone(), segment.clone())).filter(|target| **target != child);
            if let Some(target) = imported {
                let target = Path(target.0.iter().chain(rest).cloned().collect());
                return self.defining_module(&target, depth + 1).or(Some(at));
            }
            return Some(at);
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::{CrateTree, Rust};

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| Rust::read(path, text).unwrap()).collect();
        let tree = CrateTree::read("x", &files);
        tree.edges()
            .iter()
            .map(|edge| format!("{}:{} {} -> {}", edge.file, edge.line, edge.from, edge.to))
            .collect()
    }

    #[test]
    fn an_import_of_a_name_of_the_root_leads_to_the_module_that_defines_it() {
        let found = edges(&[
            ("x/src/lib.rs", "mod a;\nmod b;\npub use b::inner::B;"),
            ("x/src/a.rs", "\nuse crate::B;"),
            ("x/src/b/mod.rs", "mod inner;"),
            ("x/src/b/inner.rs", "pub struct B;"),
        ]);
        assert_eq!(found, ["x/src/lib.rs:3  -> b::inner", "x/src/a.rs:2 a -> b::inner"]);
    }

    #[test]
    fn names_of_other_crates_lead_nowhere() {
        assert!(
            edges(&[("x/src/lib.rs", "mod a;"), ("x/src/a.rs", "use std::fmt; use anyhow::{Result, bail};")])
                .is_empty()
        );
    }

    #[test]
    fn modules_for_tests_do_not_count() {
        let found = edges(&[
            ("x/src/lib.rs", "mod a;\n#[cfg(test)]\nmod tests;"),
            ("x/src/a.rs", ""),
            ("x/src/tests.rs", "use crate::a;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}

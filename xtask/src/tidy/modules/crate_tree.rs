//! The modules of one crate, and the references between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use super::reader::{self, Use};
use crate::tidy::rust::Rust;

/// The path of a module or an item from the root of its crate, which is the empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<String>);

impl Path {
    /// Splits `a::b`.
    pub fn parse(text: &str) -> Self {
        Self(text.split("::").filter(|segment| !segment.is_empty()).map(str::to_owned).collect())
    }

    /// The module of a file, given by its path below `src/`.
    fn of_file(file: &str) -> Self {
        let stem = file.strip_suffix(".rs").unwrap_or(file).replace('/', "::");
        let stem = stem.strip_suffix("::mod").unwrap_or(&stem);
        if stem == "lib" || stem == "main" { Self::default() } else { Self::parse(stem) }
    }

    /// The path of `name` in this module.
    pub fn child(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }

    /// The module around this one. The root is its own parent.
    pub fn parent(&self) -> Self {
        Self(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    /// The number of segments.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first `len` segments.
    fn prefix(&self, len: usize) -> Self {
        Self(self.0[..len].to_vec())
    }

    /// Returns true if this module is `outer` or lies in it.
    fn starts_with(&self, outer: &Path) -> bool {
        self.0.starts_with(&outer.0)
    }

    /// The path that `segments` mean in this module, with `crate`, `self` and `super` resolved. A path that begins with
    /// another name is taken to begin with an item of this module; it resolves to nothing if it names another crate.
    pub fn resolve_keywords(&self, segments: &[String]) -> Option<Self> {
        let mut at = self.clone();
        for (index, segment) in segments.iter().enumerate() {
            match segment.as_str() {
                "crate" if index == 0 => at = Self::default(),
                "self" => {}
                "super" if at.0.is_empty() => return None,
                "super" => at = at.parent(),
                name => at = at.child(name),
            }
        }
        Some(at)
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("::"))
    }
}

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
    /// All modules except the root and test modules.
    pub modules: BTreeSet<Path>,
    /// Imports by module and name.
    names: BTreeMap<(Path, String), Path>,
    uses: Vec<(String, Use)>,
}

impl CrateTree {
    /// Reads the files of a crate whose sources lie in the folder `src`, which ends in a slash.
    pub fn read<'a>(src: &str, files: impl Iterator<Item = &'a Rust>) -> Self {
        let mut tree = Self::default();
        let mut test_modules = Vec::new();
        for rust in files {
            let Some(file) = rust.path.strip_prefix(src) else { continue };
            let contents = reader::read(&Path::of_file(file), rust.tokens.clone());
            tree.modules.extend(contents.modules);
            test_modules.extend(contents.test_modules);
            tree.uses.extend(contents.uses.into_iter().map(|found| (rust.path.clone(), found)));
        }
        let is_test = |module: &Path| test_modules.iter().any(|test| module.starts_with(test));
        tree.modules.retain(|module| !is_test(module));
        tree.uses.retain(|(_, found)| !is_test(&found.from));
        for (_, found) in &tree.uses {
            if let Some(name) = &found.name {
                tree.names.entry((found.from.clone(), name.clone())).or_insert(found.to.clone());
            }
        }
        tree
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

    /// The edges between the modules directly inside `outer`. An edge of a module further inside counts as one of the module
    /// around it.
    pub fn edges_inside(&self, outer: &Path, edges: &[Edge]) -> Vec<Edge> {
        let len = outer.len() + 1;
        let inside = edges.iter().filter(|edge| {
            [&edge.from, &edge.to].iter().all(|module| module.len() >= len && module.starts_with(outer))
        });
        let lifted =
            inside.map(|edge| Edge { from: edge.from.prefix(len), to: edge.to.prefix(len), ..edge.clone() });
        lifted.filter(|edge| edge.from != edge.to).collect()
    }

    /// The module that defines the item at `path`: follows imports, and stops at the first segment that is neither a
    /// module nor an import. None if the first segment names another crate.
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
    use super::{CrateTree, Path};
    use crate::tidy::rust::Rust;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| Rust::read(path, text).unwrap()).collect();
        let tree = CrateTree::read("src/", files.iter());
        tree.edges()
            .iter()
            .map(|edge| format!("{}:{} {} -> {}", edge.file, edge.line, edge.from, edge.to))
            .collect()
    }

    #[test]
    fn an_import_of_a_name_of_the_root_leads_to_the_module_that_defines_it() {
        let found = edges(&[
            ("src/lib.rs", "mod a;\nmod b;\npub use b::inner::B;"),
            ("src/a.rs", "\nuse crate::B;"),
            ("src/b/mod.rs", "mod inner;"),
            ("src/b/inner.rs", "pub struct B;"),
        ]);
        assert_eq!(found, ["src/lib.rs:3  -> b::inner", "src/a.rs:2 a -> b::inner"]);
    }

    #[test]
    fn names_of_other_crates_lead_nowhere() {
        assert!(
            edges(&[("src/lib.rs", "mod a;"), ("src/a.rs", "use std::fmt; use anyhow::{Result, bail};")])
                .is_empty()
        );
    }

    #[test]
    fn modules_for_tests_do_not_count() {
        let found = edges(&[
            ("src/lib.rs", "mod a;\n#[cfg(test)]\nmod tests;"),
            ("src/a.rs", ""),
            ("src/tests.rs", "use crate::a;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn files_are_modules() {
        for (file, module) in
            [("lib.rs", ""), ("main.rs", ""), ("a.rs", "a"), ("a/mod.rs", "a"), ("a/b.rs", "a::b")]
        {
            assert_eq!(Path::of_file(file), Path::parse(module), "{file}");
        }
    }
}

//! The declared order of modules: the blocks of docs/design.md that begin with "```modules CRATE".
//!
//! A block has one line for each layer, from top to bottom, with the names of its modules separated
//! by spaces. `room::sub` names a module inside a module. `m<-a,b` declares the module `m`, and
//! that only `a` and `b` may import from it. A `#` begins a comment.

use std::collections::BTreeMap;

use crate::tidy::source::Path;

/// The file with the blocks.
pub const FILE: &str = "docs/design.md";

/// The declared order of one crate's modules.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The line of the document at which the block begins.
    pub line: usize,
    /// The line of the document that declares each module. Modules on a later line lie lower.
    pub layers: BTreeMap<Path, usize>,
    /// The modules that may import from a module, where the document lists them.
    pub importers: BTreeMap<Path, Vec<Path>>,
}

impl Order {
    /// Returns the modules that `from` and `to` lie in, and whose lines tell that `from` must not
    /// use `to`: the outermost ones that differ. `None` if it may, or if no order is declared for
    /// them.
    pub fn against(&self, from: &Path, to: &Path) -> Option<(Path, Path)> {
        let common = from.0.iter().zip(&to.0).take_while(|(from, to)| from == to).count();
        if common == from.len().min(to.len()) {
            return None;
        }
        let (from, to) = (from.prefix(common + 1), to.prefix(common + 1));
        (self.layers.get(&to)? <= self.layers.get(&from)?).then_some((from, to))
    }
}

/// Reads the blocks of `document`, by crate.
pub fn read(document: &str) -> BTreeMap<String, Order> {
    let mut orders = BTreeMap::new();
    let mut block: Option<(String, Order)> = None;
    for (index, text) in document.lines().enumerate() {
        let line = index + 1;
        if let Some(name) = text.trim().strip_prefix("```modules ") {
            block = Some((name.trim().to_owned(), Order { line, ..Order::default() }));
        } else if text.trim() == "```" {
            orders.extend(block.take());
        } else if let Some((_, order)) = &mut block {
            let names = text.split('#').next().unwrap_or_default().split_whitespace();
            for declared in names {
                let (name, importers) = declared.split_once("<-").unzip();
                let module = Path::parse(name.unwrap_or(declared));
                if let Some(importers) = importers {
                    let importers = importers.split(',').map(Path::parse).collect();
                    order.importers.insert(module.clone(), importers);
                }
                order.layers.insert(module, line);
            }
        }
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::{Path, read};

    #[test]
    fn layers_and_comments_are_read() {
        let orders = read("text\n```modules a\nx  y # above\n\nz<-x,y z::in\n```\nw\n```modules b\nv\n```\n");
        assert_eq!(orders.keys().collect::<Vec<_>>(), ["a", "b"]);
        let layers = &orders["a"].layers;
        assert_eq!(layers.len(), 4);
        assert_eq!((layers[&Path::parse("y")], layers[&Path::parse("z::in")]), (3, 5));
        assert_eq!(orders["a"].importers[&Path::parse("z")], ["x", "y"].map(Path::parse));
        assert_eq!(orders["b"].line, 8);
    }
}

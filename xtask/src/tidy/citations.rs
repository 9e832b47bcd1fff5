//! Rule: a hazard (H1, H2, ...) or an invariant (I1, I2, ...) that a comment cites has its row in
//! docs/design.md.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::Finding;
use super::source::Tree;

/// The file with the rows.
const FILE: &str = "docs/design.md";

/// The results of this rule.
#[derive(Default)]
pub struct Outcome {
    /// Citations without a row.
    pub findings: Vec<Finding>,
    /// Rows that no comment cites.
    pub uncited: Vec<String>,
}

/// Compares the citations in all comments with the rows.
pub fn check(tree: &Tree) -> Outcome {
    let citation = Regex::new(r"\b[HI][0-9]{1,2}\b").expect("a valid pattern");
    let rows = rows(tree.document(FILE), &citation);
    let mut outcome = Outcome::default();
    let mut cited = BTreeSet::new();
    for rust in &tree.rust {
        for (first, text) in &rust.comments {
            for (index, line) in text.lines().enumerate() {
                for found in citation.find_iter(line) {
                    cited.insert(found.as_str());
                    if !rows.contains_key(found.as_str()) {
                        outcome.findings.push(finding(&rust.path, first + index, found.as_str()));
                    }
                }
            }
        }
    }
    let uncited = rows.iter().filter(|(name, _)| !cited.contains(name.as_str()));
    outcome.uncited = uncited.map(|(name, line)| format!("{FILE}:{line}: {name}")).collect();
    outcome
}

/// The line of each row: of a table, `| H1, H2 | ...`, or of a list, `* **I1** ...`.
fn rows(document: &str, citation: &Regex) -> BTreeMap<String, usize> {
    let mut rows = BTreeMap::new();
    for (index, line) in document.lines().enumerate() {
        let head = line.strip_prefix("| ").and_then(|row| row.split(" |").next());
        let head = head.or_else(|| line.strip_prefix("* **").and_then(|item| item.split("**").next()));
        for name in citation.find_iter(head.unwrap_or_default()) {
            rows.entry(name.as_str().to_owned()).or_insert(index + 1);
        }
    }
    rows
}

fn finding(file: &str, line: usize, name: &str) -> Finding {
    let message = format!("{name} has no row in {FILE}; add one that names the hazard and its guard");
    Finding { file: file.to_owned(), line, rule: "citation", message }
}

#[cfg(test)]
mod tests {
    use super::{FILE, check};
    use crate::tidy::source::{Rust, Tree};

    #[test]
    fn citations_without_rows_and_rows_without_citations_are_found() {
        let document = "* **I1** Never.\n\n| | hazard |\n|---|---|\n| H1, H2 | a race (H7) |\n";
        let source = "/// Guards against H1.\n///\n/// And H3, by I1.\nconst H4: &str = \"H5\";\n";
        let tree = Tree {
            rust: vec![Rust::read("a.rs", source).unwrap()],
            markdown: vec![(FILE.to_owned(), document.to_owned())],
        };
        let outcome = check(&tree);
        assert_eq!(outcome.findings.len(), 1, "{:?}", outcome.findings);
        assert!(outcome.findings[0].to_string().starts_with("a.rs:3: citation: H3 has no row"));
        assert_eq!(outcome.uncited, [format!("{FILE}:5: H2")]);
    }
}

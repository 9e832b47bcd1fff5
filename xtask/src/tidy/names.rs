//! Rule: source files, types and functions that CONTRIBUTING.md and the design name in backticks
//! exist.
//!
//! A file may be named by the end of its path, from any folder on. Of `Type::function` both parts
//! are identifiers of a source.

use std::collections::HashSet;

use proc_macro2::{TokenStream, TokenTree};
use regex::Regex;

use super::Finding;
use super::source::Tree;

/// Returns a finding for each name that no source has.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let item = Regex::new(r"^([A-Z][a-z]\w*|\w+(::\w+)+)$").expect("a valid pattern");
    let mut known = HashSet::new();
    tree.rust.iter().for_each(|rust| add_identifiers(rust.tokens.clone(), &mut known));
    let exists = |span: &str| {
        if span.ends_with(".rs") {
            let end = format!("/{span}");
            tree.rust.iter().any(|rust| rust.path == span || rust.path.ends_with(&end))
        } else if span.starts_with("crates/") || span.starts_with("testing/") {
            let folder = format!("{}/", span.trim_end_matches('/'));
            tree.rust.iter().any(|rust| rust.path.starts_with(&folder))
        } else {
            !item.is_match(span) || span.split("::").all(|word| known.contains(word))
        }
    };
    let mut findings = Vec::new();
    for (file, text) in tree.markdown.iter().filter(|(path, _)| covers(path)) {
        let mut is_fenced = false;
        for (index, line) in text.lines().enumerate() {
            is_fenced ^= line.starts_with("```");
            let spans = line.split('`').skip(1).step_by(2);
            for span in spans.filter(|span| !is_fenced && !line.starts_with("```") && !exists(span)) {
                let message = format!("no source has {span}; it was renamed or removed");
                findings.push(Finding { file: file.clone(), line: index + 1, rule: "name", message });
            }
        }
    }
    findings
}

fn covers(document: &str) -> bool {
    document == "CONTRIBUTING.md" || document.starts_with("docs/design")
}

fn add_identifiers(tokens: TokenStream, known: &mut HashSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => drop(known.insert(name.to_string())),
            TokenTree::Group(group) => add_identifiers(group.stream(), known),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::source::{Rust, Tree};

    #[test]
    fn names_that_no_source_has_are_found() {
        let text = "`b.rs` `a/b.rs` `crates/a` `Known` `Known::method` `SIGBUS` `/dev/x`\n\
                    `c.rs` `crates/c`\n`Gone`\n```\n`Fenced`\n```\n`Known::gone`\n";
        let tree = Tree {
            rust: vec![Rust::read("crates/a/b.rs", "struct Known; fn f() { Known::method() }").unwrap()],
            markdown: vec![("docs/design.md".to_owned(), text.to_owned())],
        };
        let lines: Vec<usize> = check(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 2, 3, 7]);
    }
}

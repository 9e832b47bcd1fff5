//! Rule: only the files that docs/design.md lists, in its block that begins with
//! "```unsafe", have unsafe code.
//!
//! A line of the block is the path of a file, and the reason. An attribute that a crate root lacks
//! does not matter: the rule reads the code itself, also of tests, examples and macros.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use super::source::Tree;

/// The file with the list.
const FILE: &str = "docs/design.md";

/// Returns a finding for each file with unsafe code that is not listed, and for each listed file
/// without unsafe code.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let listed = listed(tree.document(FILE));
    let found: BTreeMap<&str, usize> =
        tree.rust.iter().filter_map(|rust| Some((rust.path.as_str(), first(rust.tokens.clone())?))).collect();
    let unlisted = found.iter().filter(|(path, _)| !listed.contains_key(*path));
    let unlisted = unlisted.map(|(path, line)| {
        let message = format!("unsafe code; write it without, or list the file in {FILE} with the reason");
        finding(path, *line, message)
    });
    let stale = listed.iter().filter(|(path, _)| !found.contains_key(*path));
    let stale = stale.map(|(path, line)| finding(FILE, *line, format!("{path} has no unsafe code")));
    unlisted.chain(stale).collect()
}

/// Returns the paths that the block lists, each with its line.
fn listed(document: &str) -> BTreeMap<&str, usize> {
    let mut lines = (1..).zip(document.lines()).skip_while(|(_, line)| *line != "```unsafe");
    lines.next();
    let block = lines.take_while(|(_, line)| *line != "```");
    block.filter_map(|(nth, line)| Some((line.split_whitespace().next()?, nth))).collect()
}

/// Returns the line of the first keyword `unsafe`.
fn first(tokens: TokenStream) -> Option<usize> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(name) => (name == "unsafe").then(|| name.span().start().line),
        TokenTree::Group(group) => first(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    })
}

fn finding(file: &str, line: usize, message: String) -> Finding {
    Finding { file: file.to_owned(), line, rule: "unsafe", message }
}

#[cfg(test)]
mod tests {
    use super::{FILE, check};
    use crate::tidy::source::{Rust, Tree};

    #[test]
    fn the_list_is_compared_with_the_code() {
        let document = "Text.\n```unsafe\na/b.rs  a reason\na/gone.rs\n```\na/c.rs\n";
        let rust = [
            ("a/b.rs", "fn f() { unsafe { g() } }"),
            ("a/c.rs", "// unsafe\nconst S: &str = \"unsafe\";\nmacro_rules! m { () => { unsafe { g() } } }"),
            ("a/gone.rs", "#![forbid(unsafe_code)] // unsafe"),
        ];
        let tree = Tree {
            rust: rust.iter().map(|(path, text)| Rust::read(path, text).unwrap()).collect(),
            markdown: vec![(FILE.to_owned(), document.to_owned())],
        };
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a/c.rs:3: unsafe: "), "{found:?}");
        assert!(found[1].starts_with("docs/design.md:4: unsafe: a/gone.rs has no unsafe code"), "{found:?}");
    }
}

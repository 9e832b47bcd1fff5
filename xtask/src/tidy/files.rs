//! Rules on each file: a header that says what it is for, a bounded length, and no source of
//! another crate.

use std::path::{Component, Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use super::source::Rust;

/// The longest file of a crate's sources, in lines.
const LONGEST_SOURCE: usize = 500;

/// The longest file of tests or benchmarks, in lines.
const LONGEST_TEST: usize = 650;

/// Folders inside a crate.
const FOLDERS: &[&str] = &["/src/", "/tests/", "/benches/", "/examples/"];

/// Returns the findings of all rules on one file.
pub fn check(files: &[Rust]) -> Vec<Finding> {
    files
        .iter()
        .flat_map(|rust| [header(rust), length(rust)].into_iter().flatten().chain(includes(rust)))
        .collect()
}

/// The file begins with `//!`, or includes a README as its header.
fn header(rust: &Rust) -> Option<Finding> {
    let has_header = rust.comments.iter().any(|(_, text)| text.starts_with("//!"))
        || rust.strings.iter().any(|(_, text)| text == "\"../README.md\"");
    let message = "no header; begin the file with `//!` and what it is responsible for";
    (!has_header).then(|| finding(rust, 1, "header", message.to_owned()))
}

fn length(rust: &Rust) -> Option<Finding> {
    let longest = if rust.path.contains("/src/") { LONGEST_SOURCE } else { LONGEST_TEST };
    let message = format!("{} lines, more than {longest}; split the file by subject", rust.lines);
    (rust.lines > longest).then(|| finding(rust, longest + 1, "length", message))
}

/// No `#[path]` attribute leads out of the crate.
fn includes(rust: &Rust) -> Vec<Finding> {
    let mut paths = Vec::new();
    find_paths(rust.tokens.clone(), &mut paths);
    let end = FOLDERS.iter().filter_map(|folder| rust.path.find(folder)).min().unwrap_or(0);
    let folder = Path::new(&rust.path[..end]);
    let dir = Path::new(&rust.path).parent().unwrap_or(folder);
    paths.retain(|(_, path)| !normal(&dir.join(path)).starts_with(folder));
    let message =
        |path| format!("includes {path} of another crate; move it to a library that both crates use");
    paths.into_iter().map(|(line, path)| finding(rust, line, "include", message(path))).collect()
}

/// Adds line and value of each `path` attribute.
fn find_paths(tokens: TokenStream, paths: &mut Vec<(usize, String)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    if let [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(value)] = tokens.as_slice()
        && name == "path"
    {
        paths.push((name.span().start().line, value.to_string().trim_matches('"').to_owned()));
    }
    for token in tokens {
        if let TokenTree::Group(group) = token {
            find_paths(group.stream(), paths);
        }
    }
}

/// Resolves `..` by name.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            component => normal.push(component),
        }
    }
    normal
}

fn finding(rust: &Rust, line: usize, rule: &'static str, message: String) -> Finding {
    Finding { file: rust.path.clone(), line, rule, message }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_SOURCE, check};
    use crate::tidy::source::Rust;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&[Rust::read(path, text).unwrap()]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_include_of_another_crate_is_found() {
        let text = "//! Tests.\n#[path = \"../common/mod.rs\"]\nmod common;\n#[path = \"../../../b/tests/c.rs\"]\nmod c;\n";
        let found = findings("crates/a/tests/t/main.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("crates/a/tests/t/main.rs:4: include: includes ../../../b"),
            "{found:?}"
        );
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        assert_eq!(findings("crates/a/src/b.rs", "/// A function.\nfn f() {}\n").len(), 1);
        assert!(findings("crates/a/src/b.rs", "//! A module.\n").is_empty());
    }

    #[test]
    fn a_long_file_is_found() {
        let text = |lines: usize| "//! A module.\n".to_owned() + &"\n".repeat(lines - 1);
        assert!(findings("crates/a/src/b.rs", &text(LONGEST_SOURCE)).is_empty());
        assert_eq!(findings("crates/a/src/b.rs", &text(LONGEST_SOURCE + 1)).len(), 1);
        assert!(findings("crates/a/tests/b.rs", &text(LONGEST_SOURCE + 1)).is_empty());
    }
}

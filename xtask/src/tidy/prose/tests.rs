//! Excluded phrases are found where prose is, and plain sentences pass.

use super::phrases::Phrases;
use super::{Rust, Tree, check};

fn findings(rust: &str, markdown: &str) -> Vec<String> {
    let tree = Tree {
        rust: vec![Rust::read("a.rs", rust).unwrap()],
        markdown: vec![("b.md".to_owned(), markdown.to_owned())],
    };
    check(&tree).iter().map(ToString::to_string).collect()
}

fn hits(text: &str) -> Vec<String> {
    Phrases::new().find(text).into_iter().map(|hit| hit.1.to_owned()).collect()
}

#[test]
fn phrases_are_found_in_comments_messages_and_markdown() {
    let found = findings("/// Wakes somebody.\nfn f() { panic!(\"so many pages\") }\n", "Rests behind it.\n");
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("a.rs:1: phrase: \"somebody\""), "{found:?}");
    assert!(found[1].starts_with("a.rs:2: phrase: \"so many"), "{found:?}");
    assert!(found[2].starts_with("b.md:1: phrase: \"behind\""), "{found:?}");
}

#[test]
fn a_phrase_that_spans_two_lines_is_found_in_the_first() {
    let found = findings("// The pages that it gives\n// back are clean.\n", "");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("a.rs:1:"), "{found:?}");
}

#[test]
fn code_is_no_prose() {
    let rust = "/// Calls `who` with {who}.\n/// ```\n/// somebody\n/// ```\nfn who() {}\n";
    let found = findings(rust, "```\nsomebody\n```\n");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn paragraphs_are_not_joined() {
    let found = findings("// Pages that it gives\n\n// back and forth\n", "* it gives\n* back\n");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn excluded_phrases_are_found() {
    for text in [
        "Who waits for a page sleeps.",
        "Says whether it is the only one.",
        "The same, without any more.",
        "The same of a directory.",
        "The blocks of those that write.",
        "It lets go of the range.",
        "What was read is kept.",
        "blocks behind the end of the file",
        "a page that comes into being",
        "It looks again.",
    ] {
        assert_eq!(hits(text).len(), 1, "{text}: {:?}", hits(text));
    }
}

#[test]
fn plain_sentences_pass() {
    for text in [
        "Users who mount an image",
        "so many pages that the limit is reached",
        "A look-up in the map; looks up the name.",
        "The file is left behind by a crash.",
        "The same rule as for reads.",
        "those blocks are free",
        "What is the size of the journal?",
    ] {
        assert!(hits(text).is_empty(), "{text}: {:?}", hits(text));
    }
}

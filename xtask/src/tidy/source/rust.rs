//! A Rust source, split into code, comments and string literals.

use std::ops::Range;
use std::str::FromStr;

use anyhow::{Result, anyhow};
use proc_macro2::{TokenStream, TokenTree};

/// A Rust source.
pub struct Rust {
    /// Its path, relative to the root of the workspace.
    pub path: String,
    /// The source.
    pub text: String,
    /// The number of its lines.
    pub lines: usize,
    /// Its tokens; doc comments are attributes among them.
    pub tokens: TokenStream,
    /// Comments and doc comments, as they stand, each with the number of its first line.
    pub comments: Vec<(usize, String)>,
    /// String literals with their quotes, each with the number of its first line.
    pub strings: Vec<(usize, String)>,
}

impl Rust {
    /// Splits `text`.
    pub fn read(path: &str, text: &str) -> Result<Self> {
        let tokens = TokenStream::from_str(text).map_err(|error| anyhow!("{error}"))?;
        let mut spans = Vec::new();
        leaves(text, tokens.clone(), &mut spans);
        let (mut comments, mut strings) = (Vec::new(), Vec::new());
        let mut lines = Lines::of(text);
        let mut end = 0;
        for span in spans {
            let token = &text[span.clone()];
            push_comments(text, end..span.start, &mut lines, &mut comments);
            end = span.end;
            if ["\"", "r\"", "r#", "b\"", "br", "c\"", "cr"].iter().any(|quote| token.starts_with(quote))
                && token.contains('"')
            {
                strings.push((lines.number(span.start), token.to_owned()));
            }
        }
        push_comments(text, end..text.len(), &mut lines, &mut comments);
        let lines = text.lines().count();
        Ok(Self { path: path.to_owned(), text: text.to_owned(), lines, tokens, comments, strings })
    }
}

/// Adds the byte ranges of all tokens that are no groups, and of the delimiters of groups. Skips
/// doc comments, which are attributes with the span of the comment: the gap between two tokens of
/// code has all comments of either kind.
fn leaves(text: &str, tokens: TokenStream, spans: &mut Vec<Range<usize>>) {
    for token in tokens {
        if text[token.span().byte_range()].starts_with("//")
            || text[token.span().byte_range()].starts_with("/*")
        {
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                spans.push(group.span_open().byte_range());
                leaves(text, group.stream(), spans);
                spans.push(group.span_close().byte_range());
            }
            leaf => spans.push(leaf.span().byte_range()),
        }
    }
}

/// Adds the comments in `gap`, which holds no code, one entry for each line comment and each block
/// comment.
fn push_comments(text: &str, gap: Range<usize>, lines: &mut Lines<'_>, comments: &mut Vec<(usize, String)>) {
    let mut at = gap.start;
    while let Some(start) = text[at..gap.end].find('/') {
        let start = at + start;
        let rest = &text[start..gap.end];
        let len =
            if rest.starts_with("//") { rest.find('\n').unwrap_or(rest.len()) } else { block_len(rest) };
        comments.push((lines.number(start), rest[..len].to_owned()));
        at = start + len;
    }
}

/// The length of the block comment that `text` begins with; block comments nest.
fn block_len(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Line numbers of offsets that only grow.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    number: usize,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, at: 0, number: 1 }
    }

    fn number(&mut self, offset: usize) -> usize {
        self.number += self.text.as_bytes()[self.at..offset].iter().filter(|&&byte| byte == b'\n').count();
        self.at = offset;
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::Rust;

    const SOURCE: &str = "//! Header.\n\n/// Doc.\nfn f() { // why\n    let a = \"text // no comment\";\n    /* a /* b */ c */ let b = r#\"raw \"text\" \"#;\n}\n";

    #[test]
    fn comments_and_strings_are_told_apart() {
        let rust = Rust::read("f.rs", SOURCE).unwrap();
        let expected = [(1, "//! Header."), (3, "/// Doc."), (4, "// why"), (6, "/* a /* b */ c */")];
        assert_eq!(rust.comments, expected.map(|(line, text)| (line, text.to_owned())));
        let expected = [(5, "\"text // no comment\""), (6, "r#\"raw \"text\" \"#")];
        assert_eq!(rust.strings, expected.map(|(line, text)| (line, text.to_owned())));
    }
}

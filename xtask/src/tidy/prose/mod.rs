//! Rule: no phrase of `PHRASES` in comments, doc comments, string literals and Markdown.
//!
//! Lines of one paragraph are joined first, so a phrase that spans two lines is found. Code between
//! backticks or fences and placeholders between braces are not prose, nor are the string literals
//! of this module.

mod phrases;

use super::Finding;
use super::source::{Rust, Tree};
use phrases::Phrases;

/// A paragraph in one line, with the lines that it came from.
#[derive(Default)]
struct Paragraph {
    text: String,
    /// Offset in `text` at which each line begins, and the number of that line.
    starts: Vec<(usize, usize)>,
}

/// The folder of this module, whose string literals are the excluded phrases.
const HERE: &str = "xtask/src/tidy/prose/";

/// Returns a finding for each excluded phrase.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let phrases = Phrases::new();
    let rust =
        tree.rust.iter().flat_map(|rust| paragraphs_of_rust(rust).map(|found| (rust.path.as_str(), found)));
    let markdown = tree.markdown.iter().flat_map(|(path, text)| {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned()));
        join(lines).into_iter().map(|found| (path.as_str(), found))
    });
    let mut findings = Vec::new();
    for (path, paragraph) in rust.chain(markdown) {
        for (offset, text, mend) in phrases.find(&paragraph.text) {
            findings.push(Finding {
                file: path.to_owned(),
                line: paragraph.line(offset),
                rule: "phrase",
                message: format!("\"{}\": {mend}", text.trim()),
            });
        }
    }
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    findings.dedup();
    findings
}

impl Paragraph {
    fn push(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.starts.push((self.text.len(), line));
        self.text.push_str(text);
    }

    fn line(&self, offset: usize) -> usize {
        self.starts.iter().take_while(|start| start.0 <= offset).last().map_or(1, |start| start.1)
    }

    /// Replaces code and placeholders by underscores of the same length.
    fn mask(mut self) -> Self {
        let mut masked = String::with_capacity(self.text.len());
        let mut until = None;
        for char in self.text.chars() {
            match until {
                Some(end) if char == end => until = None,
                Some(_) => {}
                None if char == '`' => until = Some('`'),
                None if char == '{' => until = Some('}'),
                None => {
                    masked.push(char);
                    continue;
                }
            }
            (0..char.len_utf8()).for_each(|_| masked.push('_'));
        }
        self.text = masked;
        self
    }
}

fn paragraphs_of_rust(rust: &Rust) -> impl Iterator<Item = Paragraph> {
    let comments = rust.comments.iter().flat_map(|(first, text)| {
        text.lines().enumerate().map(move |(index, line)| (first + index, without_marks(line)))
    });
    let strings = rust
        .strings
        .iter()
        .filter(|_| !rust.path.starts_with(HERE))
        .filter_map(|(line, text)| paragraph_of_string(*line, text));
    join(comments).into_iter().chain(strings)
}

/// The text of a line of a comment.
fn without_marks(line: &str) -> String {
    line.trim_start().trim_start_matches(['/', '*', '!']).trim_end_matches("*/").to_owned()
}

/// Joins lines that follow each other; an empty line, a list item and a row of a table begin a
/// paragraph.
fn join(lines: impl Iterator<Item = (usize, String)>) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let (mut last, mut is_fenced) = (0, false);
    for (line, text) in lines {
        let text = text.trim();
        if text.starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        if is_fenced || text.is_empty() {
            continue;
        }
        let begins = line != last + 1 || text.starts_with(['|', '*', '-', '#']);
        last = line;
        if begins || paragraphs.is_empty() {
            paragraphs.push(Paragraph::default());
        }
        if let Some(paragraph) = paragraphs.last_mut() {
            paragraph.push(line, text.trim_start_matches(['*', '-', '#', '|', ' ']));
        }
    }
    paragraphs.into_iter().map(Paragraph::mask).collect()
}

/// A string literal that may be a message: text of several words. A backslash at the end of a line
/// joins it to the next.
fn paragraph_of_string(first: usize, literal: &str) -> Option<Paragraph> {
    let text = literal.trim_start_matches(['b', 'r', 'c', '#']).trim_end_matches('#').trim_matches('"');
    if !text.trim().contains(' ') {
        return None;
    }
    let mut paragraph = Paragraph::default();
    text.lines()
        .enumerate()
        .for_each(|(index, line)| paragraph.push(first + index, line.trim_end_matches('\\').trim()));
    Some(paragraph.mask())
}

#[cfg(test)]
mod tests;

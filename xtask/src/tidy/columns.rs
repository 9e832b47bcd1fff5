//! Rule: a line of a comment or of Markdown has at most [`COLUMNS`] columns.
//!
//! Tables, code between fences, links and lines that cannot be broken are exempt.

use super::Finding;
use super::source::Tree;

/// The most columns of a line of prose, with its indentation.
const COLUMNS: usize = 100;

/// Returns a finding for each line that is too long.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let rust = tree.rust.iter().flat_map(|rust| long_lines(&rust.path, &rust.text, comment));
    let markdown = tree.markdown.iter().flat_map(|(path, text)| long_lines(path, text, any));
    rust.chain(markdown).collect()
}

/// Returns the prose of a line that is nothing but a comment.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ["///", "//!", "//"].iter().find_map(|start| line.strip_prefix(start))
}

/// Returns a line of Markdown, which is prose.
fn any(line: &str) -> Option<&str> {
    Some(line)
}

fn long_lines(path: &str, text: &str, prose: fn(&str) -> Option<&str>) -> Vec<Finding> {
    let mut is_fenced = false;
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(words) = prose(line).map(str::trim_start) else {
            is_fenced = false;
            continue;
        };
        is_fenced ^= words.starts_with("```");
        let columns = line.chars().count();
        if columns > COLUMNS && !is_fenced && !is_exempt(words) {
            let message = format!("{columns} columns, more than {COLUMNS}; wrap the paragraph");
            findings.push(Finding { file: path.to_owned(), line: index + 1, rule: "columns", message });
        }
    }
    findings
}

/// Returns true for a row of a table, for a heading, the target of a link, and for one long word.
fn is_exempt(words: &str) -> bool {
    let is_target = || words.starts_with('[') && words.contains("]: ");
    words.starts_with(['|', '#']) || is_target() || words.split(' ').any(|word| word.len() > COLUMNS / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, prose: fn(&str) -> Option<&str>) -> Vec<usize> {
        long_lines("a", text, prose).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_long_line_of_prose_is_found() {
        let (long, short) = ("word ".repeat(21), "word ".repeat(19));
        let text = format!("{short}\n{long}\n| {long} |\n# {long}\n```\n{long}\n```\n{long}\n");
        assert_eq!(lines(&text, any), [2, 8]);
        assert!(lines(&format!("{}\n", "w".repeat(200)), any).is_empty(), "it has no place to break");
    }

    #[test]
    fn a_long_line_of_code_is_not_prose() {
        let long = "word ".repeat(21);
        let text =
            format!("let a = \"{long}\";\n    /// {long}\n    // {long}\ncall(); // {long}\n//! short\n");
        assert_eq!(lines(&text, comment), [2, 3]);
    }
}

//! A mutant: one change of a source, and the words by which reports and the list of arguments name
//! it.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A change of one place of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The number by which the switch selects it.
    pub number: u32,
    /// The path of the source, from the root of the workspace.
    pub file: String,
    /// The line at which the changed part begins.
    pub line: usize,
    /// The change itself.
    pub change: Change,
    /// Counts equal changes of one function, from 1 on.
    pub nth: u32,
}

/// A change, as the walk over a source finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The bytes of the source that are replaced.
    pub range: Range<usize>,
    /// The grammar of the replaced bytes.
    pub place: SyntaxKind,
    /// The code in place of these bytes.
    pub text: String,
    /// The function that is changed, with the type that it belongs to.
    pub function: String,
    /// The original code, shortened.
    pub original: String,
    /// The code in its place, shortened.
    pub replacement: String,
}

/// The grammar of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyntaxKind {
    /// The start of a function's body, before which a `return` is inserted.
    Body,
    /// A statement, or an expression without a value.
    Statement,
    /// An expression.
    Expression,
}

impl Mutant {
    /// Returns the words that identify the mutant although lines move: file, function, original and
    /// replacement.
    pub fn key(&self) -> Key {
        Key {
            file: self.file.clone(),
            function: self.change.function.clone(),
            original: self.change.original.clone(),
            replacement: self.change.replacement.clone(),
            nth: self.nth,
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, file, line, change, nth } = self;
        write!(
            f,
            "{number} {file}:{line} {}: `{}` → `{}`",
            change.function, change.original, change.replacement
        )?;
        if *nth > 1 { write!(f, " ({nth})") } else { Ok(()) }
    }
}

/// The identity of a mutant across changes of other lines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The path of the source.
    pub file: String,
    /// The function.
    pub function: String,
    /// The original code, shortened.
    pub original: String,
    /// The code in its place, shortened.
    pub replacement: String,
    /// Counts equal changes of one function, from 1 on.
    pub nth: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, function, original, replacement, nth } = self;
        write!(f, "{file}\t{function}\t{original}\t{replacement}\t{nth}")
    }
}

impl FromStr for Key {
    type Err = &'static str;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = line.split('\t').collect();
        let [file, function, original, replacement, nth] = words[..] else { return Err("not five fields") };
        let nth = nth.parse().map_err(|_| "no number")?;
        let [file, function, original, replacement] =
            [file, function, original, replacement].map(str::to_owned);
        Ok(Self { file, function, original, replacement, nth })
    }
}

/// Longest text of an operand or a statement in a report, in characters.
const LONGEST: usize = 60;

/// Returns `code` on one line, without its end if it is long.
pub fn shorten(code: &str) -> String {
    let line = one_line(code);
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None => line,
    }
}

/// Returns `code` on one line, without its start if it is long.
pub fn shorten_start(code: &str) -> String {
    let line = one_line(code);
    match line.char_indices().rev().nth(LONGEST - 1) {
        Some((at, _)) if at > 0 => format!("…{}", line[at..].trim_start()),
        _ => line,
    }
}

fn one_line(code: &str) -> String {
    let without_comments = code.lines().map(|line| line.split("// ").next().unwrap_or_default());
    without_comments.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{shorten, shorten_start};

    #[test]
    fn long_code_is_shortened_to_one_line() {
        assert_eq!(shorten("a\n    // A comment.\n    .b()"), "a .b()");
        let long = "abcdefghij".repeat(10);
        assert_eq!(shorten(&long), format!("{}…", &long[..60]));
        assert_eq!(shorten_start(&long), format!("…{}", &long[40..]));
        assert_eq!(shorten_start(&long[..60]), long[..60]);
    }
}

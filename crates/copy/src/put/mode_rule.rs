//! Parses and applies changes of permissions.

use std::str::FromStr;

use crate::error::{Error, Result, refused};

/// Changes of permissions, as chmod(1) spells them, applied one after the other.
///
/// It is parsed from a text such as `644`, `u+w,go-w` or `a=rX`. With `D` or `F` before it, a
/// change is for directories or for other files only: `D755,F644`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeRule(Vec<Change>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    /// `Some(true)`: for directories only; `Some(false)`: for other files only.
    directories: Option<bool>,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Octal(u16),
    Symbolic {
        /// The bits of the classes that are meant.
        classes: u16,
        operator: u8,
        /// The bits in all classes.
        bits: u16,
        /// `X`: also execution, for directories and files that some class may execute.
        conditional: bool,
    },
}

const ALL: u16 = 0o7777;
const EXECUTE: u16 = 0o111;

impl ModeRule {
    /// Returns the permissions `mode` with the changes, for a directory or for another file.
    pub fn apply(&self, mode: u16, is_directory: bool) -> u16 {
        let meant = self.0.iter().filter(|change| change.directories.is_none_or(|only| only == is_directory));
        meant.fold(mode, |mode, change| match change.what {
            What::Octal(new) => new,
            What::Symbolic { classes, operator, mut bits, conditional } => {
                if conditional && (is_directory || mode & EXECUTE != 0) {
                    bits |= EXECUTE;
                }
                let bits = bits & classes;
                match operator {
                    b'+' => mode | bits,
                    b'-' => mode & !bits,
                    // Permissions are replaced; the set-ID and sticky bits of other classes stay.
                    _ => mode & !(classes & ALL) | bits,
                }
            }
        })
    }
}

impl FromStr for ModeRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.split(',').map(change).collect::<Result<_, _>>().map(Self)
    }
}

fn change(text: &str) -> Result<Change> {
    let fail = || refused!("{text:?} is no mode; expected one such as 644, D755 or u+w");
    let (directories, rest) = match text.as_bytes().first() {
        Some(b'D') => (Some(true), &text[1..]),
        Some(b'F') => (Some(false), &text[1..]),
        _ => (None, text),
    };
    if let Ok(mode) = u16::from_str_radix(rest, 8) {
        let what = What::Octal(mode);
        return if mode <= ALL { Ok(Change { directories, what }) } else { Err(fail()) };
    }
    let at = rest.find(['+', '-', '=']).ok_or_else(fail)?;
    let (named, operator, which) = (&rest[..at], rest.as_bytes()[at], &rest[at + 1..]);
    let mut classes = 0;
    for class in if named.is_empty() { "a" } else { named }.chars() {
        classes |= match class {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => ALL,
            _ => return Err(fail()),
        };
    }
    let (mut bits, mut conditional) = (0, false);
    for bit in which.chars() {
        match bit {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= EXECUTE,
            'X' => conditional = true,
            's' => bits |= 0o6000,
            't' => (bits, classes) = (bits | 0o1000, classes | 0o1000),
            _ => return Err(fail()),
        }
    }
    Ok(Change { directories, what: What::Symbolic { classes, operator, bits, conditional } })
}

#[cfg(test)]
mod tests {
    use super::ModeRule;

    #[test]
    fn rules_change_modes_as_chmod_does() {
        for (rule, before, file, directory) in [
            ("644", 0o755, 0o644, 0o644),
            ("D755,F640", 0o777, 0o640, 0o755),
            ("go-w", 0o666, 0o644, 0o644),
            ("a=rX", 0o700, 0o555, 0o555),
            ("a=rX", 0o600, 0o444, 0o555),
            ("u+s,o-x", 0o755, 0o4754, 0o4754),
            ("+t", 0o755, 0o1755, 0o1755),
        ] {
            let parsed: ModeRule = rule.parse().unwrap();
            assert_eq!(
                (parsed.apply(before, false), parsed.apply(before, true)),
                (file, directory),
                "{rule}"
            );
        }
        for wrong in ["", "9", "z+w", "u*w", "77777", "u+q", "D"] {
            assert!(wrong.parse::<ModeRule>().is_err(), "{wrong}");
        }
    }
}

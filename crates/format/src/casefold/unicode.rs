//! Folding of names that are not ASCII.

use caseless::Caseless as _;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

use super::assigned::is_assigned;

/// The code points that are ignored by default (`Default_Ignorable_Code_Point` of Unicode 12.1).
const IGNORED: [(u32, u32); 17] = [
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180e),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1_bca0, 0x1_bca3),
    (0x1_d173, 0x1_d17a),
    (0xe_0000, 0xe_0fff),
];

/// Returns the folded form of a name.
pub(super) fn fold(name: &str) -> String {
    let mut folded = Folded { chars: Vec::with_capacity(name.len()), marks: 0 };
    for c in name.chars() {
        match c {
            _ if is_ignored(c) => folded.end_marks(),
            _ if is_assigned(c) => folded.push_folded(c),
            _ => folded.push_other(c),
        }
    }
    folded.end_marks();
    String::from_iter(folded.chars)
}

fn is_ignored(c: char) -> bool {
    let c = u32::from(c);
    let at = IGNORED.partition_point(|&(_, last)| last < c);
    IGNORED.get(at).is_some_and(|&(first, _)| first <= c)
}

/// The folded form while it is built.
struct Folded {
    chars: Vec<char>,
    /// Index of the first combining mark after the last other character.
    marks: usize,
}

impl Folded {
    fn push_folded(&mut self, c: char) {
        if c.is_ascii() {
            return self.push(c.to_ascii_lowercase());
        }
        let mut replaced = false;
        for part in std::iter::once(c).default_case_fold() {
            if part != c {
                replaced = true;
                self.push_folded(part);
            }
        }
        if !replaced {
            decompose_canonical(c, |part| if part == c { self.push(c) } else { self.push_folded(part) });
        }
    }

    fn push(&mut self, c: char) {
        if canonical_combining_class(c) == 0 { self.push_other(c) } else { self.chars.push(c) }
    }

    /// Adds a character that is not a combining mark.
    fn push_other(&mut self, c: char) {
        self.end_marks();
        self.chars.push(c);
        self.marks = self.chars.len();
    }

    /// Puts the marks since the last other character in canonical order.
    fn end_marks(&mut self) {
        if let Some(marks) = self.chars.get_mut(self.marks..) {
            marks.sort_by_key(|&c| canonical_combining_class(c));
        }
        self.marks = self.chars.len();
    }
}

//! A reproducible tree of small files that resembles source code.

use crate::access_order::mix;

/// Files in a directory.
const TOGETHER: u32 = 20;
/// Directories in a directory.
const BRANCHES: u32 = 6;
const LEAST: u64 = 1 << 10;
const MOST: u64 = 20 << 10;

const WORDS: [&str; 24] = [
    "static", "int", "if", "return", "struct", "inode", "block", "unsigned", "long", "const", "goto", "out",
    "error", "len", "offset", "for", "while", "flags", "NULL", "size", "lock", "list", "map", "sizeof",
];

/// A file of the tree.
#[derive(Debug)]
pub struct SourceFile {
    /// Directory of the file, relative to the tree.
    pub dir: String,
    pub name: String,
    pub contents: Vec<u8>,
}

/// Returns `files` files, directory by directory.
pub fn tree(files: u32) -> impl Iterator<Item = SourceFile> {
    (0..files).map(|nth| SourceFile {
        dir: dir(nth / TOGETHER),
        name: format!("source-{nth}.c"),
        contents: contents(nth),
    })
}

/// Returns the path of directory number `nth`. Parents have smaller numbers than their children.
fn dir(nth: u32) -> String {
    match nth {
        0 => "tree".into(),
        _ => format!("{}/part-{nth}", dir((nth - 1) / BRANCHES)),
    }
}

/// Returns the length of a file. Small files are more frequent than large ones.
fn len(nth: u32) -> u64 {
    let part = |seed: u64| mix(u64::from(nth) << 8 | seed) % 1001;
    LEAST + (MOST - LEAST) * part(1) / 1000 * part(2) / 1000
}

/// Returns lines of words, which compress as source code does.
fn contents(nth: u32) -> Vec<u8> {
    let len = usize::try_from(len(nth)).unwrap_or(0);
    let mut text = String::with_capacity(len + 64);
    for line in (0_u64..).map(|line| mix(u64::from(nth) << 32 | line)) {
        if text.len() >= len {
            break;
        }
        for word in 0..2 + line % 8 {
            let noise = mix(line ^ word);
            text += WORDS[usize::try_from(noise % WORDS.len() as u64).unwrap_or(0)];
            text += if noise >> 32 & 7 == 0 { "(" } else { " " };
        }
        text += &format!("x{:x};\n", line >> 48);
    }
    text.truncate(len);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_tree_is_the_same_each_time_and_of_small_files() {
        let (once, again): (Vec<_>, Vec<_>) = (tree(500).collect(), tree(500).collect());
        let same = |one: &SourceFile, other: &SourceFile| {
            (&one.dir, &one.name, &one.contents) == (&other.dir, &other.name, &other.contents)
        };
        assert!(once.iter().zip(&again).all(|(one, other)| same(one, other)));
        assert!(once.iter().all(|file| (LEAST..=MOST).contains(&(file.contents.len() as u64))));
        let (small, large): (Vec<_>, Vec<_>) = once.iter().partition(|file| file.contents.len() < 6 << 10);
        assert!(small.len() > large.len() && large.len() > 50);
        let names: HashSet<_> = once.iter().map(|file| (&file.dir, &file.name)).collect();
        assert_eq!(names.len(), once.len());
    }

    #[test]
    fn directories_come_after_those_that_they_lie_in() {
        let mut made = HashSet::new();
        for file in tree(1000) {
            if made.insert(file.dir.clone()) {
                let parent = file.dir.rsplit_once('/').map(|(parent, _)| parent.to_owned());
                assert!(parent.is_none_or(|parent| made.contains(&parent)), "{}", file.dir);
            }
        }
        assert_eq!(made.len(), 50);
        assert!(made.iter().any(|dir| dir.matches('/').count() == 3));
    }
}

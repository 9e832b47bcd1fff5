//! Combinations of features. Each pair of levels of two different aspects that mke2fs accepts
//! together occurs in one of them.

use crate::kind::Kind;

/// An aspect of the format, and the levels that it can have, as arguments of mke2fs: features,
/// which follow `-O`, and further arguments.
type Aspect = &'static [Level];

/// Features, and further arguments.
#[derive(PartialEq, Eq)]
struct Level(&'static str, &'static str);

const ASPECTS: &[Aspect] = &[
    &[Level("", "-b 1024"), Level("", "-b 2048"), Level("", "-b 4096"), Level("", "-b 8192")],
    &[Level("", "-I 256"), Level("", "-I 128"), Level("", "-I 512")],
    &[Level("extent", ""), Level("^extent", "")],
    &[Level("64bit", ""), Level("^64bit", "")],
    &[
        Level("metadata_csum", ""),
        Level("metadata_csum,metadata_csum_seed", ""),
        Level("^metadata_csum,uninit_bg", ""),
        Level("^metadata_csum,^uninit_bg", ""),
    ],
    &[
        Level("has_journal", ""),
        Level("has_journal,orphan_file", ""),
        Level("has_journal,fast_commit", ""),
        Level("^has_journal", ""),
    ],
    &[Level("dir_index", ""), Level("^dir_index", ""), Level("dir_index,large_dir", "")],
    &[Level("filetype", ""), Level("^filetype", "")],
    &[
        Level("flex_bg,resize_inode", ""),
        Level("^flex_bg,^resize_inode", ""),
        Level("meta_bg,^resize_inode", ""),
    ],
    &[Level("sparse_super", ""), Level("^sparse_super", ""), Level("sparse_super2", "")],
    &[Level("", ""), Level("inline_data", ""), Level("ea_inode", ""), Level("inline_data,ea_inode", "")],
    &[Level("", ""), Level("^huge_file,^large_file,^dir_nlink,^extra_isize", "")],
    &[Level("", ""), Level("", "-g 1024"), Level("", "-G 4 -g 2048")],
    &[Level("", ""), Level("bigalloc", "-C 16384")],
];

/// Words of two levels that e2fsprogs or the kernel refuse together.
const REFUSED: &[(&str, &str)] = &[
    ("inline_data", "-I 128"),
    ("ea_inode", "-I 128"),
    ("inline_data", "^extra_isize"),
    ("64bit", "^extent"),
    ("bigalloc", "^extent"),
    ("resize_inode", "^sparse_super"),
    // The size of a flexible group needs the feature.
    ("^flex_bg", "-G 4"),
];

/// Attempts for each combination, of which the one with the most new pairs is kept.
const ATTEMPTS: usize = 40;

/// A level: the index of its aspect, and its own there.
type Choice = (usize, usize);

/// Returns combinations of features in which each pair of levels occurs. The order of choices is
/// determined by `seed`.
pub fn combinations(seed: u64) -> Vec<Kind> {
    let mut numbers = Numbers(seed);
    let mut missing = pairs();
    let mut kinds = Vec::new();
    while let Some(&pair) = missing.first() {
        let rows = (0..ATTEMPTS).map(|_| row(pair, &mut numbers));
        let count = |row: &Vec<usize>| missing.iter().filter(|pair| has(row, **pair)).count();
        let row = rows.max_by_key(count).expect("there are attempts");
        missing.retain(|pair| !has(&row, *pair));
        kinds.push(kind(kinds.len(), &row));
    }
    kinds
}

/// Returns all pairs of levels that are not refused.
fn pairs() -> Vec<(Choice, Choice)> {
    let choices = || {
        ASPECTS
            .iter()
            .enumerate()
            .flat_map(|(aspect, levels)| (0..levels.len()).map(move |level| (aspect, level)))
    };
    let all = choices().flat_map(|one| choices().map(move |other| (one, other)));
    all.filter(|(one, other)| one.0 < other.0 && !is_refused(*one, *other)).collect()
}

fn level((aspect, level): Choice) -> &'static Level {
    &ASPECTS[aspect][level]
}

fn is_refused(one: Choice, other: Choice) -> bool {
    let has = |choice, word: &str| {
        let Level(features, options) = level(choice);
        features.split(',').any(|feature| feature == word) || (options.contains(word) && !word.is_empty())
    };
    REFUSED.iter().any(|(a, b)| (has(one, a) && has(other, b)) || (has(one, b) && has(other, a)))
}

/// Returns a random row with a pair: by aspect, the index of a level. No two levels of it are
/// refused.
fn row(pair: (Choice, Choice), numbers: &mut Numbers) -> Vec<usize> {
    loop {
        let mut row: Vec<Choice> = ASPECTS
            .iter()
            .enumerate()
            .map(|(aspect, levels)| (aspect, numbers.below(levels.len())))
            .collect();
        for (aspect, level) in [pair.0, pair.1] {
            row[aspect].1 = level;
        }
        if row.iter().all(|one| row.iter().all(|other| !is_refused(*one, *other))) {
            return row.into_iter().map(|(_, level)| level).collect();
        }
    }
}

fn has(row: &[usize], pair: (Choice, Choice)) -> bool {
    [pair.0, pair.1].iter().all(|(aspect, level)| row[*aspect] == *level)
}

fn kind(nth: usize, row: &[usize]) -> Kind {
    let levels: Vec<_> = row.iter().enumerate().map(|(aspect, index)| level((aspect, *index))).collect();
    let join = |parts: Vec<&str>, by: &str| {
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(by)
    };
    let features = join(levels.iter().map(|level| level.0).collect(), ",");
    let options = join(levels.iter().map(|level| level.1).collect(), " ");
    let mut kind = Kind::new("", 24, "");
    kind.name = format!("combination {nth}").into();
    kind.mke2fs = format!("{options} -O {features}").into();
    // Linux mounts blocks above 4 KiB from 6.19 on.
    if options.contains("-b 8192") { kind.not_mounted() } else { kind }
}

/// SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).expect("limits are small")
    }
}

#[cfg(test)]
mod tests {
    use super::{combinations, has, pairs};

    #[test]
    fn a_seed_determines_combinations_with_every_pair() {
        for seed in 0..2 {
            let kinds = combinations(seed);
            assert!(kinds.len() < 40, "{}", kinds.len());
            let again = combinations(seed);
            assert!(kinds.iter().zip(&again).all(|(one, other)| one.mke2fs == other.mke2fs));
        }
        assert!(pairs().iter().all(|pair| has(&super::row(*pair, &mut super::Numbers(1)), *pair)));
    }

    #[test]
    fn contradictions_are_left_out() {
        let words: Vec<_> = combinations(1).into_iter().map(|kind| kind.mke2fs).collect();
        assert!(words.iter().any(|words| words.contains("-I 128")));
        assert!(!words.iter().any(|words| words.contains("-I 128") && words.contains("inline_data")));
    }
}

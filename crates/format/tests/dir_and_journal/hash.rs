//! The directory hashes against `debugfs dx_hash`.

use std::collections::BTreeSet;

use parext4_format::casefold::fold;
use parext4_format::hash::DirHash;

use crate::image::{debugfs_bytes, have_e2fsprogs};

const SEEDS: [(&str, [u32; 4]); 2] = [
    ("00000000-0000-0000-0000-000000000000", [0; 4]),
    ("01020304-0506-0708-f90a-0b0c0d0e0fff", [0x0403_0201, 0x0807_0605, 0x0c0b_0af9, 0xff0f_0e0d]),
];

/// Names of every length, of letters and of bytes from 0x80 on.
fn names() -> Vec<Vec<u8>> {
    (1..=255_u8)
        .flat_map(|length| {
            let letters = (0..length).map(|at| b'a' + at % 26).collect();
            let high = (0..length).map(|at| 0x80 | at.wrapping_mul(31).wrapping_add(length)).collect();
            [letters, high]
        })
        .collect()
}

#[test]
fn hashes_are_those_of_debugfs() {
    if !have_e2fsprogs() {
        return;
    }
    let (mut commands, mut expected) = (Vec::new(), Vec::new());
    for version in 0..=5_u8 {
        for (uuid, seed) in SEEDS {
            let hash = DirHash::from_disk(version, false, seed).unwrap();
            for name in names() {
                commands.extend_from_slice(format!("dx_hash -h {version} -s {uuid} ").as_bytes());
                commands.extend_from_slice(&name);
                commands.push(b'\n');
                let (major, minor) = hash.hash(&name);
                expected.push((format!("0x{major:x} (minor 0x{minor:x})"), version, name));
            }
        }
    }
    compare(&commands, &expected);
}

/// Compares the output of dx_hash commands with the hashes expected of versions of names.
fn compare(commands: &[u8], expected: &[(String, u8, Vec<u8>)]) {
    let scratch = tempfile::tempdir().unwrap();
    let answer = debugfs_bytes(&scratch, &[], commands, None);
    let found: Vec<_> = answer.lines().filter(|line| line.starts_with("Hash of ")).collect();
    assert_eq!(found.len(), expected.len());
    for (line, (hash, version, name)) in found.iter().zip(expected) {
        assert!(line.ends_with(hash), "version {version} of {name:?}: {hash}, debugfs: {line}");
    }
}

/// Names for which the steps of folding matter: each of a sample of characters on its own, runs of
/// neighbouring characters, and random mixtures of letters with foldings, Hangul, combining marks,
/// ignored characters and bytes that are no characters.
fn hard_names() -> BTreeSet<Vec<u8>> {
    let step = if std::env::var("PAREXT4_STRESS_ALL").is_ok_and(|all| all == "1") { 1 } else { 61 };
    let all: Vec<char> = ('\u{80}'..='\u{2ffff}').chain('\u{e0000}'..='\u{e0200}').collect();
    let alone = all.iter().step_by(step).map(|c| format!("A{c}"));
    let runs = all[..0x3000].chunks(7).map(String::from_iter);
    let mut names: BTreeSet<_> = alone.chain(runs).map(String::into_bytes).collect();

    let parts = "A k ſ ß ẞ İ ı Σ ς Å Å K Ǆ ﬃ ŉ ΐ ᾳ ᾷ Ω Ա և Ꭰ ꭰ 𐐀 한 글 ᄒ ᅡ ᆫ が 豈 ー";
    let mut parts: Vec<Vec<u8>> = parts.split(' ').map(|part| part.as_bytes().to_vec()).collect();
    let marks = "\u{301}\u{323}\u{345}\u{30a}\u{338}\u{5b0}\u{302a}\u{1d165}\u{344}";
    let ignored = "\u{ad}\u{200d}\u{34f}\u{fe0f}\u{115f}\u{e0061}\u{feff}\u{2065}\u{378}\u{1fae0}";
    parts.extend(
        marks.chars().chain(marks.chars()).chain(ignored.chars()).map(|c| c.to_string().into_bytes()),
    );
    let mut random = 7_u64;
    for nth in 0..if step == 1 { 100_000 } else { 4000 } {
        let mut name = Vec::new();
        while name.len() < 4 + nth % 60 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (random >> 33) as usize % parts.len();
            name.extend_from_slice(&parts[at]);
        }
        names.insert(name);
    }
    names
}

#[test]
fn hashes_of_folded_names_are_those_of_debugfs() {
    if !have_e2fsprogs() {
        return;
    }
    let hash = DirHash::from_disk(1, false, [0; 4]).unwrap();
    let (mut commands, mut expected) = (Vec::new(), Vec::new());
    for name in hard_names() {
        commands.extend_from_slice(b"dx_hash -h half_md4 -c -e utf8 ");
        commands.extend_from_slice(&name);
        commands.push(b'\n');
        let (major, minor) = hash.hash(&fold(&name).unwrap_or(name.clone()));
        expected.push((format!("0x{major:x} (minor 0x{minor:x})"), 1, name));
    }
    compare(&commands, &expected);
}

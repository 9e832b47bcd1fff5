//! The directory hashes against `debugfs dx_hash`.

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
    let scratch = tempfile::tempdir().unwrap();
    let answer = debugfs_bytes(&scratch, &[], &commands, None);
    let found: Vec<_> = answer.lines().filter(|line| line.starts_with("Hash of ")).collect();
    assert_eq!(found.len(), expected.len());
    for (line, (hash, version, name)) in found.iter().zip(expected) {
        assert!(line.ends_with(&hash), "version {version} of {name:?}: {hash}, debugfs: {line}");
    }
}

//! Names with equal hashes, which continue from leaf to leaf.

use super::{Image, names, new};

/// After 240 times 'x', these suffixes have the same legacy hash. Found by trial.
const ENDS: [&str; 14] = [
    "aaaaaaa", "b8o345q", "d3w5gh5", "d8ueft9", "fxu9wym", "fxxsg5l", "f8uv5kn", "g8ag1yy", "h1nnlb1",
    "ia22axq", "jntth9v", "klr74uf", "n6s0idz", "ola7knl",
];

fn colliding(end: &str) -> Vec<u8> {
    [&[b'x'; 240], end.as_bytes()].concat()
}

/// A leaf of 1 KiB holds three such names.
#[test]
fn names_of_one_hash_fill_several_leaves() {
    for others in [0, 200] {
        let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
        if !image.tune2fs(&["-E", "hash_alg=legacy"]) {
            return;
        }
        let volume = image.open();
        let dir = volume.create_dir("/dir", 0o755).unwrap();
        let other = |n: u32| format!("{n:0>100}").into_bytes();
        for n in 0..others / 2 {
            dir.create(&other(n), &new()).unwrap();
        }
        for end in ENDS {
            dir.create(&colliding(end), &new()).unwrap();
        }
        for n in others / 2..others {
            dir.create(&other(n), &new()).unwrap();
        }
        let mut expected: Vec<_> = (0..others).map(other).chain(ENDS.map(colliding)).collect();
        expected.sort();
        assert_eq!(names(&dir), expected);
        for name in &expected {
            dir.lookup(name).unwrap();
        }
        drop(dir);
        volume.close().unwrap();
        image.fsck();
        image.with_kernel(|root| {
            for name in &expected {
                let name = std::str::from_utf8(name).unwrap();
                assert!(root.join("dir").join(name).metadata().is_ok(), "{name}");
            }
        });
        let volume = image.open();
        let dir = volume.resolve("/dir").unwrap();
        for end in ENDS.iter().step_by(2) {
            dir.unlink(&colliding(end)).unwrap();
        }
        assert_eq!(names(&dir).len(), expected.len() - 7);
        dir.create(&colliding(ENDS[0]), &new()).unwrap();
        drop(dir);
        volume.close().unwrap();
        image.fsck();
    }
}

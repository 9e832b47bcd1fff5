//! Directories whose bytes are anything: errors, and no panic.

use std::sync::Arc;

use super::{Image, concurrent::Random, names, new};
use parext4::device::MemDevice;
use parext4::{Node, OpenOptions, RenameMode, Volume};

/// Does everything to a directory, whatever comes of it.
fn exercise(volume: &Volume, dir: &Node) {
    let mut after = 0;
    let mut batches = 0;
    while let Ok(batch) = dir.read_dir(after) {
        let Some(last) = batch.last() else { break };
        assert!(last.cookie > after, "the listing goes on");
        after = last.cookie;
        batches += 1;
        assert!(batches < 10_000, "the listing ends");
    }
    let root = volume.root().unwrap();
    for n in 0..40_u32 {
        let name = |what: &str| format!("{what}-{n:0>200}").into_bytes();
        let _ = dir.lookup(&name("old"));
        let _ = dir.create(&name("new"), &new());
        let _ = dir.mkdir(&name("dir"), &new());
        let _ = dir.rename(&name("old"), &root, &name("moved"), RenameMode::Replace);
        let _ = dir.unlink(&name("old"));
        let _ = dir.lookup(b"..").and_then(|parent| parent.rmdir(b"dir"));
    }
    let _ = root.rename(b"dir", &root, b"moved", RenameMode::Replace);
    let _ = volume.mkdir("/to", 0o755).and_then(|to| root.rename(b"moved", &to, b"x", RenameMode::Replace));
}

/// Without checksums, so that nothing but the checks of the structures is in the way.
#[test]
fn any_bytes_in_a_directory() {
    for features in ["^metadata_csum", "^metadata_csum,^dir_index"] {
        let Some(image) = Image::mke2fs(8, &["-b", "1024", "-N", "512", "-O", features]) else { return };
        let volume = image.open();
        let dir = volume.mkdir("/dir", 0o755).unwrap();
        let file = dir.create(b"file", &new()).unwrap();
        for n in 0..400_u32 {
            dir.link(format!("old-{n:0>200}").as_bytes(), &file).unwrap();
        }
        assert_eq!(names(&dir).len(), 401);
        drop((dir, file));
        volume.close().unwrap();
        let blocks: Vec<usize> =
            image.debugfs("blocks /dir").split_whitespace().map(|block| block.parse().unwrap()).collect();
        if blocks.is_empty() {
            return;
        }
        let sound = MemDevice::from_bytes(std::fs::read(image.path()).unwrap());
        for seed in 1..=60 {
            let mut random = Random::new(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
            let mut bytes = sound.snapshot();
            for _ in 0..1 + random.below(6) {
                // Mostly the root and the first nodes and entries, where most fields are.
                let block = match random.below(2) {
                    0 => blocks[0],
                    _ => blocks[usize::try_from(random.below(blocks.len() as u64)).unwrap()],
                };
                let within = if random.below(2) == 0 { 64 } else { 1024 };
                let at = block * 1024 + usize::try_from(random.below(within)).unwrap();
                let value = [0, 1, 0xff, 0x0c, random.below(256)][usize::try_from(random.below(5)).unwrap()];
                bytes[at] = u8::try_from(value).unwrap();
            }
            let options = OpenOptions { commit_interval: None, ..OpenOptions::default() };
            let volume = Volume::open(Arc::new(MemDevice::from_bytes(bytes)), &options).unwrap();
            if let Ok(dir) = volume.resolve("/dir") {
                exercise(&volume, &dir);
            }
            let _ = volume.close();
        }
    }
}

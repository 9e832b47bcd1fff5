//! Checks the model itself against the kernel's ext4, so that a match with the model is a match
//! with ext4.

use std::path::Path;

use testkit::ops::{FileModel, FileOp, KernelFile, Shape, Way};
use testkit::rng::Rng;
use testkit::{Image, settings};

use super::random::{changes_within, content};

fn changes(name: &str, mount: &Path, block: u64) {
    let seed = settings::seed(name);
    let file = KernelFile::open(&mount.join("file")).unwrap();
    let mut model = FileModel::with_blocks(block);
    let mut rng = Rng::new(seed, 0);
    let ops = changes_within(64 * block, block, &[Way::Buffered]);
    for nth in 0..250 {
        let change = ops.random(&mut rng, &Shape { size: model.size(), block });
        let content = content(&mut rng);
        // Dirty pages count as data.
        let sync = FileOp::SyncAll { way: Way::Buffered };
        let read = FileOp::Read { way: Way::Buffered, offset: 0, len: 4 * 64 * block };
        for op in [change, sync, read] {
            let outcome = file.run(op, content).map_err(|e| e.to_string());
            let followed = outcome.and_then(|outcome| model.follow(op, content, &outcome));
            followed
                .unwrap_or_else(|error| panic!("seed {seed}, change {nth}, {change:x?}: {op:?}: {error}"));
        }
        let data = file.data().unwrap();
        // Where parts of blocks are zeroed, or extents would become short, the kernel writes zeros
        // and has more data than the model.
        for (start, end) in model.data() {
            let is_there = data.iter().any(|range| range.0 <= start && end <= range.1);
            assert!(
                is_there,
                "seed {seed}, change {nth}, {change:x?}: no data at {start}..{end}, only {data:?}"
            );
        }
    }
}

fn kernel(name: &str, block_size: u32) {
    let options = ["-b", &block_size.to_string()];
    let Some(image) = Image::mke2fs(32, &options) else { return };
    image.with_kernel(|mount| changes(name, mount, block_size.into()));
}

#[test]
fn the_kernel_does_the_same_1k() {
    kernel("the_kernel_does_the_same_1k", 1024);
}

#[test]
fn the_kernel_does_the_same_2k() {
    kernel("the_kernel_does_the_same_2k", 2048);
}

#[test]
fn the_kernel_does_the_same_4k() {
    kernel("the_kernel_does_the_same_4k", 4096);
}

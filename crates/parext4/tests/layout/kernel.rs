//! Checks the model itself against the kernel's ext4, so that a match with the model is a match
//! with ext4.

use std::fs::File;
use std::io::Error;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use testkit::rng::Rng;
use testkit::{Image, settings};

use super::model::{Change, Model};

fn make(change: Change, file: &File) -> Result<(), Error> {
    let kept = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    let (flags, offset, len) = match change {
        Change::Write { offset, len, byte } => {
            return file.write_all_at(&vec![byte; usize::try_from(len).unwrap()], offset);
        }
        Change::SetLen { size } => return file.set_len(size),
        Change::Punch { offset, len } => (FallocateFlags::PUNCH_HOLE | kept(true), offset, len),
        Change::Zero { offset, len, keep_size } => {
            (FallocateFlags::ZERO_RANGE | kept(keep_size), offset, len)
        }
        Change::Collapse { offset, len } => (FallocateFlags::COLLAPSE_RANGE, offset, len),
        Change::Insert { offset, len } => (FallocateFlags::INSERT_RANGE, offset, len),
        Change::Allocate { offset, len, keep_size } => (kept(keep_size), offset, len),
    };
    Ok(fallocate(file, flags, offset, len)?)
}

/// Returns the ranges of bytes that seeking finds, and all bytes.
fn look(file: &File) -> (Vec<u8>, Vec<(u64, u64)>) {
    // Dirty pages count as data.
    file.sync_all().unwrap();
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let (mut ranges, mut at) = (Vec::new(), 0);
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        ranges.push((start, at));
    }
    (bytes, ranges)
}

fn changes(name: &str, mount: &Path, block_size: u32) {
    let seed = settings::seed(name);
    let path = mount.join("file");
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let mut model = Model::new(block_size as usize);
    let mut rng = Rng::new(seed, 0);
    for nth in 0..250 {
        let change = Change::random(&mut rng, block_size.into(), model.bytes.len() as u64, 64);
        let failed = |error: String| panic!("seed {seed}, change {nth}, {change:x?}: {error}");
        make(change, &file).unwrap_or_else(|e| failed(e.to_string()));
        model.make(change);
        let (bytes, data) = look(&file);
        model.same(&bytes).unwrap_or_else(failed);
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
    image.with_kernel(|mount| changes(name, mount, block_size));
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

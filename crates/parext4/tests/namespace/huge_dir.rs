//! A directory of more than 4 GiB, whose size has more than 32 bits. Its leaves are all empty at
//! first, and almost all hashes lead to the first one. The device makes them up when they are read,
//! so that the image stays sparse.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{Error, Image, names, new};
use parext4::device::forward_device;
use parext4::{Device, DeviceOptions, FileDevice, Volume};
use parext4_format::htree::{DxEntry, encode_node, init_root, node_limit};
use parext4_format::{FileBlock, InodeNo};
use testkit::settings;
use testkit::volume::{assert_clean_file, untimed};

const BLOCK: u64 = 4096;
/// Blocks of the directory: more than 4 GiB.
const BLOCKS: u32 = (1 << 20) + 2000;
/// The lowest hash of the second leaf. The further ones have the rest of the hashes in equal parts.
const SECOND: u32 = 0xff00_0000;

/// A leaf without names: one unused entry.
const EMPTY: [u8; 8] = [0, 0, 0, 0, 0, 0x10, 0, 0];

/// A device whose blocks in `runs` are empty leaves as long as they were not written.
#[derive(Debug)]
struct EmptyLeaves {
    device: FileDevice,
    /// In blocks.
    runs: Vec<Range<u64>>,
}

impl Device for EmptyLeaves {
    forward_device!(this => this.device; size, sector_size, read_only, network, write_at, flush, discard);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.device.read_at(offset, bufs)?;
        let mut at = offset;
        for buf in bufs {
            for part in buf.chunks_mut(BLOCK as usize) {
                let is_leaf = self.runs.iter().any(|run| run.contains(&(at / BLOCK)));
                if is_leaf && at.is_multiple_of(BLOCK) && part.iter().all(|&byte| byte == 0) {
                    part[..EMPTY.len()].copy_from_slice(&EMPTY);
                }
                at += part.len() as u64;
            }
        }
        Ok(())
    }
}

/// Marks the blocks that debugfs has allocated for the directory as written. Returns them in their
/// order.
fn mark_written(image: &Image, file: &File) -> Vec<u64> {
    let shown = image.debugfs("ex /big");
    let index = shown.lines().find(|line| line.trim_start().starts_with("0/")).expect("a tree with one leaf");
    let leaf: u64 = index.split_whitespace().rev().nth(1).unwrap().parse().unwrap();
    let mut bytes = vec![0; BLOCK as usize];
    file.read_exact_at(&mut bytes, leaf * BLOCK).unwrap();
    let count = u16::from_le_bytes([bytes[2], bytes[3]]);
    let mut blocks = Vec::new();
    for extent in bytes[12..].chunks_exact_mut(12).take(count.into()) {
        let len = u16::from_le_bytes([extent[4], extent[5]]);
        let len = if len > 1 << 15 { len - (1 << 15) } else { len };
        extent[4..6].copy_from_slice(&len.to_le_bytes());
        let start = u64::from(u32::from_le_bytes(*extent[8..].first_chunk().unwrap()));
        blocks.extend(start..start + u64::from(len));
    }
    file.write_all_at(&bytes, leaf * BLOCK).unwrap();
    assert_eq!(blocks.len(), BLOCKS as usize);
    blocks
}

/// Returns entries for the blocks from `first` on, one for each of `hashes`.
fn entries(hashes: &[u32], first: u32) -> Vec<DxEntry> {
    (first..).zip(hashes).map(|(block, &hash)| DxEntry { hash, block: FileBlock(block) }).collect()
}

/// Writes the index: two levels of nodes after the root, and the leaves after them.
fn write_index(file: &File, blocks: &[u64], dir: InodeNo) {
    let limit = node_limit(BLOCK as usize, false);
    let upper = (BLOCKS as usize - 1).div_ceil(limit * limit);
    // Each of them has a full number of leaves, except for the last one.
    let lower = (BLOCKS as usize - 1 - upper).div_ceil(limit + 1);
    let leaves = BLOCKS - 1 - (upper + lower) as u32;
    assert_eq!((leaves as usize).div_ceil(limit), lower);
    let step = ((u32::MAX - SECOND) / leaves) & !1;
    let hashes: Vec<u32> =
        std::iter::once(0).chain((0..leaves - 1).map(|leaf| SECOND + leaf * step)).collect();
    let write = |at: usize, bytes: &[u8]| file.write_all_at(bytes, blocks[at] * BLOCK).unwrap();
    let mut level = entries(&hashes, 1 + (upper + lower) as u32);
    let mut block = vec![0; BLOCK as usize];
    for first in [1 + upper, 1] {
        let mut above = Vec::new();
        for (at, part) in level.chunks(limit).enumerate() {
            encode_node(&mut block, false, part);
            write(first + at, &block);
            above.push(part[0].hash);
        }
        level = entries(&above, first as u32);
    }
    init_root(&mut block, false, dir, InodeNo::ROOT, 1, 2, &level);
    write(0, &block);
}

/// Makes the image. Returns the blocks of the directory with it.
fn make() -> Option<(Image, Vec<u64>)> {
    let options = ["-b", "4096", "-N", "512", "-O", "large_dir,^metadata_csum"];
    let image = Image::mke2fs(6144, &options)?;
    image.debugfs_write("mkdir /big");
    image.debugfs_write(&format!("fallocate /big 1 {}", BLOCKS - 1));
    // Extents and an index.
    image.debugfs_write("sif /big flags 0x81000");
    image.debugfs_write(&format!("sif /big size 0x{:x}", u64::from(BLOCKS) * BLOCK));
    let file = File::options().read(true).write(true).open(image.path()).unwrap();
    let blocks = mark_written(&image, &file);
    // The first number after lost+found.
    write_index(&file, &blocks, InodeNo(12));
    Some((image, blocks))
}

fn name(n: u32) -> Vec<u8> {
    format!("{n:0>200}").into_bytes()
}

/// Links names to a file until the directory has grown three times. Returns their number.
fn grow(volume: &Volume) -> u32 {
    let (dir, first) =
        (volume.resolve("/big").unwrap(), volume.root().unwrap().create(b"first", &new()).unwrap());
    let size = u64::from(BLOCKS) * BLOCK;
    assert_eq!(dir.metadata().size, size);
    let mut count = 0;
    while dir.metadata().size < size + 3 * BLOCK {
        assert!(matches!(dir.lookup(&name(count)), Err(Error::NotFound { .. })));
        dir.link(&name(count), &first).unwrap();
        count += 1;
    }
    for n in 0..count {
        assert_eq!(dir.lookup(&name(n)).unwrap().ino(), first.ino());
    }
    assert!(matches!(dir.link(&name(3), &first), Err(Error::Exists(_))));
    dir.unlink(&name(0)).unwrap();
    dir.rename(&name(1), &dir, b"renamed", parext4::RenameMode::Replace).unwrap();
    count
}

/// Asserts that the directory has the names that [`grow`] left.
fn assert_names(volume: &Volume, count: u32) {
    let dir = volume.resolve("/big").unwrap();
    assert!(matches!(dir.lookup(&name(0)), Err(Error::NotFound { .. })));
    for n in 2..count {
        assert!(dir.lookup(&name(n)).is_ok(), "{n}");
    }
    assert!(dir.lookup(b"renamed").is_ok());
}

#[test]
fn a_directory_of_more_than_4_gib_grows() {
    let Some((image, blocks)) = make() else { return };
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &block in &blocks {
        match runs.last_mut() {
            Some(run) if run.end == block => run.end += 1,
            _ => runs.push(block..block + 1),
        }
    }
    let open = || {
        let device = FileDevice::open(image.path(), &DeviceOptions::new()).unwrap();
        let device: Arc<dyn Device> = Arc::new(EmptyLeaves { device, runs: runs.clone() });
        Volume::open_device(device, &untimed()).unwrap()
    };
    let volume = open();
    let count = grow(&volume);
    volume.close().unwrap();
    let volume = open();
    assert_names(&volume, count);
    volume.close().unwrap();
    if settings::all() {
        with_all_leaves(&image, &blocks, count);
    }
}

/// Writes the empty leaves, which takes 4 GiB on disk, and has e2fsck and the kernel read the
/// directory.
fn with_all_leaves(image: &Image, blocks: &[u64], count: u32) {
    let file = File::options().read(true).write(true).open(image.path()).unwrap();
    let mut block = vec![0; BLOCK as usize];
    for number in blocks {
        file.read_exact_at(&mut block, number * BLOCK).unwrap();
        if block.iter().all(|&byte| byte == 0) {
            file.write_all_at(&EMPTY, number * BLOCK).unwrap();
        }
    }
    assert_clean_file(&image.path(), "a directory of more than 4 GiB");
    let volume = image.open();
    // One was removed.
    assert_eq!(names(&volume.resolve("/big").unwrap()).len(), count as usize - 1);
    volume.close().unwrap();
    image.with_kernel(|root| {
        assert_eq!(std::fs::read_dir(root.join("big")).unwrap().count(), count as usize - 1);
        std::fs::write(root.join("big/by the kernel"), "").unwrap();
    });
    assert!(image.open().resolve("/big/by the kernel").is_ok());
}

//! Files of very many extents, and extents over very many groups: the most blocks that one change
//! of the extent tree needs.

use parext4::{DirectFile, FileSize, Volume};
use testkit::Image;
use testkit::volume::DirectFiles as _;

/// Writes, reads the data from a fresh volume, and runs e2fsck.
fn write_and_check(image: &Image, volume: Volume, file: DirectFile, len: usize) {
    let data: Vec<u8> = (0..len).map(|at| (at / 512 % 251) as u8).collect();
    file.write_all_at(&data, 0).unwrap();
    drop(file);
    volume.close().unwrap();
    image.fsck();

    let volume = image.open();
    let mut back = vec![0; len];
    assert_eq!(volume.direct_file("/a").unwrap().read_at(&mut back, 0).unwrap(), len);
    assert!(back == data, "the read returns the written data");
    volume.close().unwrap();
}

#[test]
fn one_write_converts_thousands_of_single_blocks() {
    let Some(image) = Image::mke2fs(64, &["-b", "1024"]) else { return };
    let volume = image.open();
    let (a, b) = (volume.create_direct("/a").unwrap(), volume.create_direct("/b").unwrap());
    for block in 0..6000 {
        a.allocate(block << 10..(block + 1) << 10, FileSize::Extend).unwrap();
        b.allocate(block << 10..(block + 1) << 10, FileSize::Extend).unwrap();
    }
    drop(b);
    write_and_check(&image, volume, a, 6000 << 10);
}

#[test]
fn one_write_converts_blocks_allocated_from_the_end_to_the_start() {
    let Some(image) = Image::mke2fs(96, &["-b", "1024"]) else { return };
    let volume = image.open();
    let a = volume.create_direct("/a").unwrap();
    for piece in (0..8000).rev() {
        a.allocate(piece << 12..(piece << 12) + (4 << 10), FileSize::Keep).unwrap();
    }
    write_and_check(&image, volume, a, 8000 << 12);
}

#[test]
fn an_extent_over_many_groups_is_freed() {
    let Some(image) = Image::mke2fs(
        64,
        &["-b", "1024", "-g", "256", "-N", "512", "-G", "256", "-O", "^resize_inode,^meta_bg"],
    ) else {
        return;
    };
    let volume = image.open();
    let file = volume.create_direct("/a").unwrap();
    file.allocate(0..56 << 20, FileSize::Extend).unwrap();
    // From here on the groups are in no transaction, and count again.
    volume.sync().unwrap();
    file.set_len(1000).unwrap();
    drop(file);
    volume.close().unwrap();
    image.fsck();
}

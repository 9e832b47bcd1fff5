//! Requests that are refused, with the errors of fallocate(2) and lseek(2), and the results of
//! seeking and mapping.

use std::sync::Arc;

use parext4::{Device, DirectFile, Error, FileExtent, FileSize, Volume};

use testkit::Image;
use testkit::volume::{DirectFiles as _, Shape, untimed};

const BLOCK: u64 = 4096;

fn refused(result: Result<(), Error>, errno: i32) {
    let error = result.expect_err("refused");
    assert_eq!(error.to_errno(), errno, "{error}");
}

fn file_of(blocks: u64) -> (Volume, DirectFile) {
    let device = Arc::new(Shape::new(16, 4096, true).make());
    let volume = Volume::open_device(device as Arc<dyn Device>, &untimed()).unwrap();
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&vec![7; usize::try_from(blocks * BLOCK).unwrap()], 0).unwrap();
    (volume, file)
}

#[test]
fn requests_that_the_kernel_refuses_are_refused() {
    const EINVAL: i32 = 22;
    const EFBIG: i32 = 27;
    let (_volume, file) = file_of(8);
    for (offset, len) in [(0, 0), (1, BLOCK), (BLOCK, 1)] {
        refused(file.collapse_range(offset..offset + len), EINVAL);
        refused(file.insert_range(offset..offset + len), EINVAL);
    }
    refused(file.punch_hole(0..0), EINVAL);
    refused(file.zero_range(0..0, FileSize::Extend), EINVAL);
    refused(file.collapse_range(4 * BLOCK..8 * BLOCK), EINVAL);
    refused(file.collapse_range(7 * BLOCK..11 * BLOCK), EINVAL);
    refused(file.insert_range(8 * BLOCK..9 * BLOCK), EINVAL);
    let most = u64::from(u32::MAX) * BLOCK;
    refused(file.insert_range(0..most - 7 * BLOCK), EFBIG);
    refused(file.punch_hole(most..most + 1), EFBIG);
    refused(file.zero_range(u64::MAX - 1..u64::MAX, FileSize::Keep), EFBIG);
    // Data past the end moves, too.
    file.allocate(most - BLOCK..most, FileSize::Keep).unwrap();
    refused(file.insert_range(0..BLOCK), EFBIG);
    file.collapse_range(0..BLOCK).unwrap();
    file.insert_range(0..BLOCK).unwrap();
    assert_eq!(file.size(), 8 * BLOCK);
}

#[test]
fn files_that_may_not_be_changed_are_not() {
    const EPERM: i32 = 1;
    let Some(image) = Image::mke2fs(16, &["-b", "4096"]) else { return };
    let volume = image.open();
    for path in ["/frozen", "/appended"] {
        volume.create_direct(path).unwrap().write_all_at(&[7; 8192], 0).unwrap();
    }
    volume.close().unwrap();
    image.debugfs_write("set_inode_field /frozen flags 0x80010");
    image.debugfs_write("set_inode_field /appended flags 0x80020");
    let volume = image.open();
    for path in ["/frozen", "/appended"] {
        let file = volume.direct_file(path).unwrap();
        refused(file.punch_hole(0..BLOCK), EPERM);
        refused(file.zero_range(0..BLOCK, FileSize::Keep), EPERM);
        refused(file.collapse_range(0..BLOCK), EPERM);
        refused(file.insert_range(0..BLOCK), EPERM);
        refused(file.set_len(0), EPERM);
        assert_eq!(file.allocate(0..4 * BLOCK, FileSize::Keep).is_ok(), path == "/appended");
    }
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn seeking_finds_data_and_holes() {
    let (_volume, file) = file_of(4);
    file.punch_hole(BLOCK..2 * BLOCK).unwrap();
    file.zero_range(2 * BLOCK..3 * BLOCK, FileSize::Keep).unwrap();
    file.set_len(6 * BLOCK + 100).unwrap();
    let data = |offset| file.seek_data(offset).ok();
    assert_eq!([data(0), data(5), data(BLOCK)], [Some(0), Some(5), Some(3 * BLOCK)]);
    assert_eq!(data(4 * BLOCK), None);
    let hole = |offset| file.seek_hole(offset).ok();
    assert_eq!([hole(0), hole(BLOCK + 1), hole(3 * BLOCK)], [Some(BLOCK), Some(BLOCK + 1), Some(4 * BLOCK)]);
    assert_eq!([hole(6 * BLOCK + 99), hole(6 * BLOCK + 100)], [Some(6 * BLOCK + 99), None]);
    assert_eq!(file.seek_hole(u64::MAX).expect_err("past the end").to_errno(), 6);
    assert_eq!(file.seek_data(6 * BLOCK).expect_err("no data").to_errno(), 6);
}

#[test]
fn the_map_tells_of_unwritten_blocks_and_the_last() {
    let (_volume, file) = file_of(4);
    file.punch_hole(BLOCK..2 * BLOCK).unwrap();
    file.allocate(4 * BLOCK..6 * BLOCK, FileSize::Keep).unwrap();
    let seen =
        |extent: &FileExtent| (extent.offset / BLOCK, extent.len / BLOCK, extent.unwritten, extent.last);
    let all = file.fiemap(0..u64::MAX).unwrap();
    let all: Vec<_> = all.iter().map(seen).collect();
    assert_eq!(all, [(0, 1, false, false), (2, 2, false, false), (4, 2, true, true)]);
    let part = file.fiemap(3 * BLOCK..4 * BLOCK + 1).unwrap();
    let part: Vec<_> = part.iter().map(seen).collect();
    assert_eq!(part, [(3, 1, false, false), (4, 1, true, false)]);
    assert!(file.fiemap(6 * BLOCK..u64::MAX).unwrap().is_empty());
}

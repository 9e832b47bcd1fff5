//! Clusters of a volume with bigalloc: what is counted, what is refused, and corrupt trees.

use std::sync::Arc;

use parext4::{DirectFile, Error, MemDevice, Volume};
use testkit::image::Image;
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, exercise_damaged, untimed};

const BLOCK: u64 = 1024;
/// Blocks of a cluster.
const CLUSTER: u64 = 8;

fn open(device: &Arc<MemDevice>) -> Volume {
    Volume::open_device(Arc::clone(device) as Arc<_>, &untimed()).unwrap()
}

fn sectors(file: &DirectFile) -> u64 {
    file.inode_ref().metadata().sectors
}

#[test]
fn space_is_counted_in_clusters() {
    let device = Arc::new(Shape::new(16, 1024, true).with_clusters(8).make());
    let volume = open(&device);
    volume.write("/other", b"the first file").unwrap();
    let file = volume.create_direct("/file").unwrap();
    volume.sync().unwrap();
    let free = volume.space().free_blocks;
    let in_use = |clusters: u64, what: &str| {
        assert_eq!(sectors(&file), clusters * CLUSTER * BLOCK / 512, "{what}: st_blocks");
        assert_eq!(volume.space().free_blocks, free - clusters * CLUSTER, "{what}: free blocks");
    };
    file.set_len(100 * BLOCK).unwrap();
    for block in [1, 6, 17, 16, 95] {
        file.write_all_at(&[7; 1024], block * BLOCK).unwrap();
    }
    in_use(3, "five blocks in three clusters");
    file.punch_hole(BLOCK..6 * BLOCK).unwrap();
    in_use(3, "a block of the first cluster is left");
    assert_eq!(file.seek_data(0).unwrap(), 6 * BLOCK);
    file.punch_hole(6 * BLOCK..7 * BLOCK).unwrap();
    in_use(2, "the last block of a cluster was punched");
    file.set_len(17 * BLOCK).unwrap();
    in_use(1, "truncated within a cluster");
    let buffered = file.buffered().unwrap();
    buffered.write_all_at(&[8; 100], 18 * BLOCK).unwrap();
    assert_eq!(sectors(&file), CLUSTER * BLOCK / 512, "a dirty page in a cluster that the file has");
    buffered.write_all_at(&[8; 100], 40 * BLOCK).unwrap();
    buffered.write_all_at(&[8; 100], 45 * BLOCK).unwrap();
    assert_eq!(sectors(&file), 2 * CLUSTER * BLOCK / 512, "dirty pages reserve one cluster");
    buffered.sync_all().unwrap();
    in_use(2, "written back");
    drop((buffered, file));
    volume.remove_file("/file").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.space().free_blocks, free);
    volume.close().unwrap();
    assert_clean(&device, "counted");
}

/// Dirty pages reserve a cluster of the tree for each 32 blocks, an eighth of their space here, and
/// one contiguous write needs as good as none of it.
#[test]
fn one_buffered_write_takes_as_much_space_as_a_direct_one() {
    for is_extended in [false, true] {
        let device = Arc::new(Shape::new(64, 1024, true).with_clusters(4).make());
        let volume = open(&device);
        let file = volume.create_direct("/file").unwrap();
        let len = volume.space().available_blocks / 100 * 99 * BLOCK;
        if is_extended {
            file.set_len(len).unwrap();
        }
        let data: Vec<u8> = (0..len).map(|at| (at / 1024 % 251) as u8).collect();
        file.buffered().unwrap().write_all_at(&data, 0).unwrap();
        assert_eq!(file.size(), len);
        drop(file);
        volume.sync().unwrap();
        assert!(volume.read("/file").unwrap() == data, "{is_extended}: other contents");
        let file = volume.create_direct("/too-large").unwrap();
        let result = file.buffered().unwrap().write_all_at(&data, 0);
        assert!(matches!(result, Err(Error::NoSpace)) && file.size() == 0, "{result:?}, {}", file.size());
        drop(file);
        volume.close().unwrap();
        assert_clean(&device, "one write");
    }
}

#[test]
fn ranges_that_move_are_whole_clusters() {
    let device = Arc::new(Shape::new(16, 1024, true).with_clusters(8).make());
    let volume = open(&device);
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 64 << 10], 0).unwrap();
    let is_invalid = |result| matches!(result, Err(Error::Invalid(_)));
    assert!(is_invalid(file.collapse_range(BLOCK..BLOCK + CLUSTER * BLOCK)));
    assert!(is_invalid(file.collapse_range(CLUSTER * BLOCK..CLUSTER * BLOCK + BLOCK)));
    assert!(is_invalid(file.insert_range(0..4 * BLOCK)));
    file.collapse_range(CLUSTER * BLOCK..CLUSTER * BLOCK + CLUSTER * BLOCK).unwrap();
    file.insert_range(2 * CLUSTER * BLOCK..2 * CLUSTER * BLOCK + CLUSTER * BLOCK).unwrap();
    assert_eq!(file.size(), 64 << 10);
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "moved");
}

/// Free blocks are as many as before once all is removed, and the kernel counts the same.
#[test]
fn the_kernel_counts_the_same() {
    let Some(image) = Image::mke2fs(32, &["-b", "1024", "-O", "bigalloc,ea_inode", "-C", "16384"]) else {
        return;
    };
    let volume = image.open();
    let file = volume.create_direct("/file").unwrap();
    for nth in 0..200 {
        file.write_all_at(&[1; 1024], nth * 3 * 16384 + nth % 16 * BLOCK).unwrap();
    }
    file.inode_ref().set_xattr(b"user.large", &[7; 9000], parext4::XattrMode::Create).unwrap();
    file.inode_ref().set_xattr(b"user.block", &[7; 500], parext4::XattrMode::Create).unwrap();
    let (blocks, space) = (sectors(&file), volume.space());
    drop(file);
    volume.close().unwrap();
    image.fsck();
    image.with_kernel(|root| {
        let metadata = std::fs::metadata(root.join("file")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::blocks(&metadata), blocks);
        let found = rustix::fs::statvfs(root).unwrap();
        assert_eq!(found.f_blocks, space.blocks - space.overhead_blocks, "f_blocks");
        assert_eq!(found.f_bfree, space.free_blocks, "f_bfree");
        assert_eq!(found.f_bavail, space.available_blocks, "f_bavail");
        std::fs::remove_file(root.join("file")).unwrap();
    });
    image.fsck();
}

/// Makes a volume without checksums, and returns it with the place of the extents of `/file`, which
/// are in its inode.
fn with_extents() -> (MemDevice, usize) {
    let shape = Shape { features: "bigalloc,^metadata_csum", ..Shape::new(8, 1024, true).with_clusters(8) };
    let device = Arc::new(shape.make());
    let volume = open(&device);
    let file = volume.create_direct("/file").unwrap();
    for block in [3, 6, 21, 50] {
        file.write_all_at(&[1; 1024], block * BLOCK).unwrap();
    }
    drop(file);
    volume.close().unwrap();
    let bytes = device.snapshot();
    let is_root = |at: &usize| bytes[*at..].starts_with(&[0x0a, 0xf3, 4, 0, 4, 0]) && bytes[at + 12] == 3;
    let at = (0..bytes.len() - 60).step_by(4).find(is_root).expect("the root of the tree");
    (device.fork(), at)
}

#[test]
fn arbitrary_extents_cause_no_panic() {
    let (sound, root) = with_extents();
    for seed in 1..=200 {
        let mut rng = Rng::new(seed, 0);
        let mut bytes = sound.snapshot();
        for _ in 0..=rng.below(3) {
            let at = root + 12 + usize::try_from(rng.below(48)).unwrap();
            bytes[at] = match rng.below(3) {
                0 => bytes[at] ^ 1 << rng.below(8),
                1 => bytes[at].wrapping_add(1),
                _ => u8::try_from(rng.below(256)).unwrap(),
            };
        }
        exercise_damaged(&bytes, exercise);
    }
}

/// Runs every operation on the file, and ignores the results.
fn exercise(volume: &Volume) {
    let Ok(file) = volume.direct_file("/file") else { return };
    let mut bytes = vec![0; 16384];
    let _ = file.fiemap(0..u64::MAX);
    for block in 0..60 {
        let _ = file.read_at(&mut bytes, block * BLOCK);
        let _ = file.write_all_at(&bytes[..1024], block * BLOCK);
        if block % 7 == 0 {
            let _ = file.punch_hole((block + 1) * BLOCK..(block + 1) * BLOCK + 2 * BLOCK);
        }
    }
    let _ = file.collapse_range(0..CLUSTER * BLOCK);
    let _ = file.buffered().and_then(|buffered| buffered.write_all_at(&bytes, 70_000));
    let _ = volume.sync();
    let _ = file.set_len(30 * BLOCK);
    drop(file);
    let _ = volume.remove_file("/file");
    let _ = volume.sync();
}

/// Blocks that have another place in their cluster, or a cluster of the file that is in two places.
#[test]
fn extents_that_split_clusters_are_corrupt() {
    let (sound, root) = with_extents();
    let lowest = |nth: usize| root + 12 + 12 * nth + 8;
    for (nth, change) in [(0, 1), (1, 8), (2, 2)] {
        let mut bytes = sound.snapshot();
        bytes[lowest(nth)] = bytes[lowest(nth)].wrapping_add(change);
        let volume = open(&Arc::new(MemDevice::from_bytes(bytes)));
        let file = volume.direct_file("/file");
        let written = file.and_then(|file| file.write_all_at(&[1; 1024], 0));
        assert!(matches!(written, Err(Error::Corrupt(_))), "extent {nth}: {written:?}");
    }
}

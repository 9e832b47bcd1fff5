//! Orphans: inodes registered for two reasons, and inodes that cannot be deleted.

use std::sync::Arc;

use parext4::{Device, Error, FileSize, MemDevice, Volume, replay_journal};
use parext4_format::features::RoCompat;
use parext4_format::superblock::{STATE_ERROR, Superblock};

use testkit::Image;
use testkit::volume::{DirectFiles as _, assert_clean, e2fsck, recover, untimed, without_error_record};

/// Volumes whose orphans are in the list, and in the orphan file.
const PLACES: [&str; 2] = ["^orphan_file", "orphan_file"];

fn load(image: &Image) -> Arc<MemDevice> {
    Arc::new(MemDevice::from_bytes(std::fs::read(image.path()).unwrap()))
}

fn open(device: &Arc<MemDevice>) -> Result<Volume, Error> {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &untimed())
}

/// The truncation of an unlinked file takes several transactions, and makes it an orphan for a
/// second reason. After the first reason is gone, the second remains.
#[test]
fn an_unlinked_file_that_is_cut_stays_an_orphan() {
    for place in PLACES {
        // The groups are so small that the file's bitmaps do not fit one transaction.
        let features = format!("^resize_inode,{place}");
        let options = ["-b", "1024", "-g", "256", "-N", "3584", "-J", "size=1", "-O", &features];
        let Some(image) = Image::mke2fs(112, &options) else { return };
        let device = load(&image);
        let volume = open(&device).unwrap();
        let before = volume.space();
        let file = volume.create_direct("/file").unwrap();
        file.allocate(0..90 << 20, FileSize::Extend).unwrap();
        volume.remove_file("/file").unwrap();
        file.set_len(0).unwrap();
        volume.sync().unwrap();

        let crashed = Arc::new(device.fork());
        recover(&crashed);
        assert_clean(&crashed, place);
        assert_eq!(open(&crashed).unwrap().space(), before, "{place}");

        // In the other order: the name is removed after the truncation.
        drop(file);
        let file = volume.create_direct("/other").unwrap();
        file.allocate(0..90 << 20, FileSize::Extend).unwrap();
        file.set_len(0).unwrap();
        volume.remove_file("/other").unwrap();
        volume.sync().unwrap();
        let crashed = Arc::new(device.fork());
        recover(&crashed);
        assert_clean(&crashed, place);
        drop(file);
        volume.close().unwrap();
        assert_clean(&device, place);
    }
}

/// Many orphans, some in the middle of the list deleted first.
#[test]
fn orphans_are_finished_in_any_order() {
    for place in PLACES {
        let Some(image) = Image::mke2fs(16, &["-N", "2048", "-O", place]) else { return };
        let device = load(&image);
        let volume = open(&device).unwrap();
        let before = volume.space();
        let mut files = Vec::new();
        for n in 0..1500 {
            let path = format!("/{n}");
            files.push(volume.create_direct(&path).unwrap());
            volume.remove_file(&path).unwrap();
        }
        drop(files.drain(700..800));
        volume.sync().unwrap();
        let crashed = Arc::new(device.fork());
        recover(&crashed);
        assert_clean(&crashed, place);
        let after = open(&crashed).unwrap().space();
        assert_eq!(after.free_inodes, before.free_inodes);
    }
}

/// The target of a link of ext2 or ext3 is in a block that the inode names directly. It is freed
/// with the link, also on a volume with extents.
#[test]
fn the_block_of_a_symbolic_link_without_extents_is_freed() {
    let Some(image) = Image::mke2fs(16, &["-O", "^metadata_csum,^orphan_file"]) else { return };
    let volume = image.open();
    let before = volume.space();
    volume.symlink("/link", "t".repeat(100)).unwrap();
    volume.symlink("/short", "t").unwrap();
    volume.create_direct("/file").unwrap();
    volume.close().unwrap();
    let block = image.debugfs("blocks /link").trim().to_owned();
    if block.is_empty() {
        return;
    }
    image.debugfs_write("sif /link flags 0");
    image.debugfs_write(&format!("sif /link block[0] {block}"));
    for index in 1..12 {
        image.debugfs_write(&format!("sif /link block[{index}] 0"));
    }
    for index in ["IND", "DIND", "TIND"] {
        image.debugfs_write(&format!("sif /link block[{index}] 0"));
    }
    image.fsck();

    let device = load(&image);
    let volume = open(&device).unwrap();
    volume.remove_file("/short").unwrap();
    volume.rename("/file", "/link").unwrap();
    volume.remove_file("/link").unwrap();
    volume.close().unwrap();
    device.save(image.path()).unwrap();
    image.fsck();
    assert_eq!(image.open().space(), before);
}

/// The orphan list and the orphan file hold a number of an inode that is free, reserved, or out of
/// range. As in the kernel, the volume opens without the orphan, and reports errors.
#[test]
fn an_orphan_that_is_none_does_not_keep_the_volume_shut() {
    for (place, number) in
        PLACES.into_iter().flat_map(|place| [100, 5, u32::MAX].map(|number| (place, number)))
    {
        let features = format!("^metadata_csum,{place}");
        let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", &features]) else { return };
        let mut bytes = std::fs::read(image.path()).unwrap();
        let mut superblock = Superblock::parse(&bytes[1024..2048]).unwrap();
        if superblock.orphan_file_inode() != 0 {
            // The blocks of an empty orphan file are zeros up to their tails.
            let tail = [0x04, 0xca, 0x10, 0x0b];
            let at = bytes.chunks(1024).position(|block| block[1016..1020] == tail).unwrap() * 1024;
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            superblock.set_ro_compat(superblock.ro_compat() | RoCompat::ORPHAN_PRESENT);
        } else {
            superblock.set_last_orphan(number);
        }
        superblock.encode(&mut bytes[1024..2048]);
        std::fs::write(image.path(), &bytes).unwrap();
        image.with_kernel(|mount| assert!(mount.join("lost+found").exists()));

        let device = Arc::new(MemDevice::from_bytes(bytes));
        for errors in [1, 1] {
            let volume = open(&device).unwrap();
            volume.metadata("/lost+found").unwrap();
            volume.close().unwrap();
            let superblock = Superblock::parse(&device.snapshot()[1024..2048]).unwrap();
            assert_eq!((superblock.error_count(), superblock.state() & STATE_ERROR), (errors, STATE_ERROR));
            assert_eq!(superblock.last_orphan(), 0);
            assert!(!superblock.ro_compat().contains(RoCompat::ORPHAN_PRESENT));
        }
        assert_clean(&device, &format!("{place} {number}"));
    }
}

/// The kernel logs the size and the orphan before it zeroes the rest of the block. An encrypted
/// block is no zeros after decryption.
#[test]
fn an_interrupted_truncation_leaves_zeros_in_the_rest_of_its_block() {
    const SIZE: usize = 5000;
    const OLD: u8 = 0xaa;
    for (flags, rest) in [("0x80000", 0), ("0x80800", OLD)] {
        let options = ["-b", "4096", "-O", "^orphan_file,^inline_data,encrypt"];
        let Some(image) = Image::mke2fs(16, &options) else { return };
        let volume = image.open();
        volume.write("/file", [OLD; 3 * 4096]).unwrap();
        let ino = volume.metadata("/file").unwrap().ino;
        volume.close().unwrap();
        let blocks = image.debugfs("blocks /file");
        let second: usize = blocks.split_whitespace().nth(1).unwrap().parse().unwrap();
        image.debugfs_write(&format!("sif /file flags {flags}"));
        image.debugfs_write(&format!("sif /file size {SIZE}"));
        image.debugfs_write(&format!("ssv last_orphan {ino}"));

        let device = load(&image);
        open(&device).unwrap().close().unwrap();
        let bytes = &device.snapshot()[second * 4096..][..4096];
        let (file, past) = bytes.split_at(SIZE - 4096);
        assert!(file.iter().all(|&byte| byte == OLD), "{flags}");
        assert!(past.iter().all(|&byte| byte == rest), "{flags}");
        if rest == 0 {
            // e2fsck misses the attribute of an encrypted file.
            assert_clean(&device, flags);
        }
    }
}

/// Their deletion could free blocks of other files. The kernel does the same.
#[test]
fn orphans_of_a_volume_with_errors_on_record_are_left_to_e2fsck() {
    for place in PLACES {
        let Some(image) = Image::mke2fs(16, &["-O", place]) else { return };
        let device = load(&image);
        let volume = open(&device).unwrap();
        let before = volume.space();
        let unlinked = |volume: &Volume, name: &str| {
            let file = volume.create_direct(name).unwrap();
            volume.remove_file(name).unwrap();
            file
        };
        let files = ["/1", "/2", "/3"].map(|name| unlinked(&volume, name));
        volume.sync().unwrap();
        let crashed = Arc::new(device.fork());
        drop(files);
        replay_journal(Arc::clone(&crashed) as Arc<dyn Device>).unwrap();
        let mut bytes = crashed.snapshot();
        let mut superblock = Superblock::parse(&bytes[1024..2048]).unwrap();
        superblock.set_state(superblock.state() | STATE_ERROR);
        superblock.encode(&mut bytes[1024..2048]);

        let device = Arc::new(MemDevice::from_bytes(bytes));
        let volume = open(&device).unwrap();
        assert_eq!(volume.space().free_inodes + 3, before.free_inodes, "{place}");
        let file = unlinked(&volume, "/4");
        volume.sync().unwrap();
        let again = Arc::new(device.fork());
        drop(file);
        volume.close().unwrap();
        for (device, left) in [(device, 3), (again, 4)] {
            let space = open(&device).unwrap().space();
            assert_eq!(space.free_inodes + left, before.free_inodes, "{place}");
            if let Some((status, text)) = e2fsck(&device, "-fy") {
                assert_eq!(status, Some(1), "{text}");
            }
            let device = Arc::new(without_error_record(&device));
            recover(&device);
            assert_clean(&device, place);
            assert_eq!(open(&device).unwrap().space(), before, "{place}");
        }
    }
}

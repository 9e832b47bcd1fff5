//! Arbitrary bytes in inodes with contents: operations return errors and do not panic, and do not
//! hang.

use std::sync::Arc;

use parext4::device::MemDevice;
use parext4::{
    DeviceOptions, DirectFile, Error, FileDevice, NewInode, OpenOptions, RenameMode, Volume, VolumeOptions,
    XattrMode,
};
use testkit::Image;
use testkit::rng::Rng;

fn image() -> Option<Image> {
    let options = ["-b", "1024", "-I", "256", "-N", "64", "-O", "inline_data,^metadata_csum"];
    let image = Image::mke2fs(4, &options)?;
    let volume = image.open();
    volume.write("/empty", b"").unwrap();
    volume.write("/short", b"short").unwrap();
    volume.write("/long", [b'x'; 120]).unwrap();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    for number in 0..7 {
        dir.create(format!("name{number}").as_bytes(), &NewInode::new()).unwrap();
    }
    dir.mkdir(b"sub", &NewInode::new()).unwrap();
    volume.resolve("/short").unwrap().set_xattr(b"user.a", &[1; 20], XattrMode::Any).unwrap();
    drop(dir);
    volume.close().unwrap();
    image.debugfs_write(&format!("symlink link {}", "t".repeat(100)));
    Some(image)
}

/// Runs operations of all kinds, and ignores their results.
fn exercise(volume: &Volume) {
    for path in ["/empty", "/short", "/long", "/link", "/dir", "/dir/name1", "/dir/sub"] {
        let Ok(node) = volume.resolve_no_follow(path) else { continue };
        let _ = node.list_xattr();
        let _ = node.read_link();
        let _ = node.read_dir_after(0);
        let _ = node.lookup(b"name3");
        let _ = node.lookup(b"..");
        let _ = node.set_xattr(b"user.new", &[1; 40], XattrMode::Any);
        let _ = node.create(b"child", &NewInode::new());
        let _ = node.unlink(b"name2");
        let _ = node.rename(b"name4", &node, b"a-name-that-is-longer", RenameMode::Replace);
        let Ok(file) = DirectFile::new(node) else { continue };
        let _ = file.fiemap(0..u64::MAX);
        let _ = file.seek_data(0);
        let _ = volume.read(path);
        let _ = file.buffered().map(|file| {
            let _ = file.write_all_at(b"other", 3);
            let _ = file.append(&[2; 30]);
            let _ = file.set_len(70);
            let _ = file.append(&[3; 200]);
            let _ = file.sync_all();
        });
        let _ = file.punch_hole(0..10);
    }
    let _ = volume.remove_file("/long");
    let _ = volume.rename("/dir/sub", "/sub");
    let _ = volume.remove_dir("/sub");
    let _ = volume.open_file("/short", &OpenOptions::read_write().truncate(true));
}

#[test]
fn arbitrary_bytes_cause_no_panic() {
    let Some(image) = image() else { return };
    let sound = std::fs::read(image.path()).unwrap();
    // Inodes with attributes after their fields.
    let magic = [0, 0, 2, 0xea];
    let homes: Vec<usize> =
        (0..sound.len()).step_by(256).filter(|&at| sound[at + 160..at + 164] == magic).collect();
    assert!(homes.len() >= 10);
    let options = VolumeOptions::new().commit_interval(None);
    let mut rng = Rng::new(3, 0);
    let below = |rng: &mut Rng, limit: usize| usize::try_from(rng.below(limit as u64)).unwrap();
    for _ in 0..400 {
        let mut bytes = sound.clone();
        for _ in 0..=rng.below(4) {
            let home = homes[below(&mut rng, homes.len())];
            // Mode, size and flags; the contents; the attribute; its value.
            let (start, len) = [(0, 8), (32, 4), (40, 60), (160, 28), (188, 68)][below(&mut rng, 5)];
            let value = [0, 1, 0xff, 4, 12, 0x10, below(&mut rng, 256)][below(&mut rng, 7)];
            bytes[home + start + below(&mut rng, len)] = u8::try_from(value).unwrap();
        }
        let Ok(volume) = Volume::open_device(Arc::new(MemDevice::from_bytes(bytes)), &options) else {
            continue;
        };
        exercise(&volume);
        let _ = volume.close();
    }
}

#[test]
fn contradictions_are_named() {
    let Some(image) = image() else { return };
    // INLINE_DATA is 0x10000000, EXTENTS 0x80000.
    image.debugfs_write("sif /short flags 0x10080000");
    image.debugfs_write("sif /dir flags 0x0");
    image.debugfs_write("ea_rm /long system.data");
    image.debugfs_write("sif /empty size 0xffffffff");
    let volume = image.open();
    if image.debugfs("stat /short").is_empty() {
        return;
    }
    assert!(matches!(volume.read("/short"), Err(Error::Corrupt(_))), "two formats at once");
    assert!(
        volume.read_dir("/dir").unwrap().any(|entry| entry.is_err()),
        "neither in blocks nor in the inode"
    );
    let mut bytes = [1; 600];
    let empty = volume.open_file("/empty", &OpenOptions::read_only()).unwrap();
    assert_eq!(empty.read_at(&mut bytes, 0xffff_0000).unwrap(), 600, "a hole past the contents");
    assert_eq!(bytes, [0; 600]);
    drop(empty);
    assert!(volume.close().is_ok());
    // The journal and the orphan file cannot lie in an inode.
    image.debugfs_write("sif <8> flags 0x10000000");
    let device = FileDevice::open(image.path(), &DeviceOptions::new()).unwrap();
    let opened = Volume::open_device(Arc::new(device), &VolumeOptions::new());
    assert!(matches!(opened, Err(Error::Corrupt(_))), "{opened:?}");
    image.debugfs_write("sif <8> flags 0x80000");
    // A volume without the feature.
    if image.tune2fs(&["-O", "^metadata_csum"]) {
        image.debugfs_write("feature -inline_data");
        let volume = image.open();
        assert!(matches!(volume.read("/long"), Err(Error::Corrupt(_))), "inline_data is not set");
        let _ = volume.close();
    }
}

//! Attributes of arbitrary bytes: operations return errors and do not panic.

use std::sync::Arc;

use super::{Image, file, full_list, new};
use parext4::device::MemDevice;
use parext4::{Device, Error, InodeRef, SetAttributes, Volume, VolumeOptions, XattrMode};
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, untimed};

/// Runs every operation on the attributes of an inode, and ignores the results.
fn exercise(node: &InodeRef) {
    for name in node.list_xattr().unwrap_or_default() {
        let _ = node.get_xattr(&name);
        let _ = node.set_xattr(&name, b"other", XattrMode::Replace);
    }
    let _ = node.get_xattr(b"system.posix_acl_access");
    let _ = node.set_attributes(&SetAttributes::new().permissions(0o600));
    let _ = node.set_xattr(b"user.new", &[1; 300], XattrMode::Any);
    let _ = node.remove_xattr(b"user.b");
    let _ = node.create(b"child", &new());
}

/// Without checksums, so that only the checks of the structures apply.
#[test]
fn arbitrary_bytes_in_attributes_cause_no_panic() {
    let options = ["-b", "1024", "-N", "512", "-O", "^metadata_csum"];
    let Some(image) = Image::mke2fs(8, &options) else { return };
    let volume = image.open();
    let dir = volume.root().unwrap().mkdir(b"dir", &new()).unwrap();
    dir.set_xattr(b"system.posix_acl_default", &full_list(), XattrMode::Any).unwrap();
    for (name, len) in [("user.a", 400), ("user.b", 10), ("trusted.c", 3), ("security.d", 100)] {
        dir.set_xattr(name.as_bytes(), &vec![5; len], XattrMode::Any).unwrap();
    }
    dir.set_xattr(b"system.posix_acl_access", &full_list(), XattrMode::Any).unwrap();
    drop(dir);
    volume.close().unwrap();
    let sound = std::fs::read(image.path()).unwrap();
    let magic = [0, 0, 2, 0xea];
    let places: Vec<usize> = (0..sound.len()).step_by(4).filter(|&at| sound[at..at + 4] == magic).collect();
    // One in the inode and one in the block, and perhaps in the journal.
    let homes: Vec<usize> = places.into_iter().filter(|at| at % 256 == 160 || at % 1024 == 0).collect();
    assert!(homes.len() >= 2);
    let options = VolumeOptions::new().commit_interval(None);
    let mut rng = Rng::new(1, 0);
    let below = |rng: &mut Rng, limit| usize::try_from(rng.below(limit)).unwrap();
    for _ in 0..300 {
        let mut bytes = sound.clone();
        for _ in 0..=rng.below(5) {
            let home = homes[below(&mut rng, homes.len() as u64)];
            let within = if rng.chance(70) { 96 } else { 1024 };
            let value = [0, 1, 0xff, 4, below(&mut rng, 256)][below(&mut rng, 5)];
            bytes[home + below(&mut rng, within)] = u8::try_from(value).unwrap();
        }
        let volume = Volume::open_device(Arc::new(MemDevice::from_bytes(bytes)), &options).unwrap();
        if let Ok(dir) = volume.resolve("/dir") {
            exercise(&dir);
        }
        let _ = volume.close();
    }
}

#[test]
fn a_block_that_cannot_be_one_is_named() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "^metadata_csum"]) else { return };
    let volume = image.open();
    file(&volume, "file");
    volume.close().unwrap();
    for block in ["1", "100000000", "6000"] {
        image.debugfs_write(&format!("sif /file file_acl {block}"));
        let volume = image.open();
        let node = volume.resolve("/file").unwrap();
        let is_set = !image.debugfs("stat /file").is_empty();
        for result in [
            node.list_xattr().map(drop),
            node.set_xattr(b"user.a", b"x", XattrMode::Any),
            node.remove_xattr(b"user.a"),
        ] {
            assert!(!is_set || matches!(result, Err(Error::Corrupt(_))), "{block}: {result:?}");
        }
        // Data and names are unchanged.
        assert_eq!(node.metadata().size, 0);
        drop(node);
        volume.close().unwrap();
    }
}

/// A block that counts no inode cannot lose one. The last name of such a file stays, and the volume
/// can be changed.
#[test]
fn a_block_that_counts_no_inode_stops_no_volume() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-I", "128", "-O", "^metadata_csum"]) else { return };
    let volume = image.open();
    file(&volume, "file").set_xattr(b"user.a", b"x", XattrMode::Any).unwrap();
    volume.close().unwrap();
    let stat = image.debugfs("stat /file");
    let block = stat.split("File ACL: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    image.debugfs_write(&format!("zap_block -o 4 -l 4 -p 0 {block}"));
    let volume = image.open();
    let node = volume.resolve("/file").unwrap();
    for result in [
        node.get_xattr(b"user.a").map(drop),
        node.set_xattr(b"user.b", b"x", XattrMode::Any),
        node.remove_xattr(b"user.a"),
        volume.remove_file("/file"),
    ] {
        assert!(matches!(&result, Err(error) if error.to_string().contains("h_refcount")), "{result:?}");
    }
    drop(node);
    assert!(volume.exists("/file").unwrap());
    volume.write("/other", "text").unwrap();
    volume.close().unwrap();
}

/// Without `ea_inode`, an entry whose value is in an inode is damage, which does not keep the inode
/// from being deleted.
#[test]
fn a_file_with_a_value_in_an_inode_without_the_feature_is_deleted() {
    let shape = Shape { features: "^metadata_csum", ..Shape::new(8, 1024, false) };
    let device = Arc::new(shape.make());
    let open = |device: &Arc<MemDevice>| {
        Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &untimed()).unwrap()
    };
    let volume = open(&device);
    volume
        .create_direct("/file")
        .unwrap()
        .inode_ref()
        .set_xattr(b"user.a", &[5; 400], XattrMode::Any)
        .unwrap();
    volume.close().unwrap();
    let mut bytes = device.snapshot();
    let is_block = |block: &[u8]| block[..4] == [0, 0, 2, 0xea];
    let blocks: Vec<_> =
        bytes.chunks(1024).enumerate().filter(|(_, block)| is_block(block)).map(|(at, _)| at).collect();
    assert_eq!(blocks.len(), 1);
    // `e_value_inum` of the first entry.
    bytes[blocks[0] * 1024 + 0x24..][..4].copy_from_slice(&12_u32.to_le_bytes());
    let volume = open(&Arc::new(MemDevice::from_bytes(bytes)));
    volume.remove_file("/file").unwrap();
    volume.close().unwrap();
}

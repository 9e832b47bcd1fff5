//! Each operation, its errors, and its effects as debugfs and e2fsck see them.

use std::path::Path;

use super::{Image, KINDS, assert_fails, file, names, new, on_each_kind};
use parext4::XattrMode;

#[test]
fn attributes_are_set_replaced_and_removed() {
    on_each_kind(|volume| {
        let node = file(volume, "file");
        assert_eq!(node.get_xattr(b"user.a").unwrap(), None);
        node.set_xattr(b"user.a", b"first", XattrMode::Create).unwrap();
        node.set_xattr(b"trusted.b", b"", XattrMode::Any).unwrap();
        node.set_xattr(b"security.c", &[3; 300], XattrMode::Any).unwrap();
        node.set_xattr("user.höhe".as_bytes(), b"8848", XattrMode::Any).unwrap();
        assert_eq!(names(&node), ["security.c", "trusted.b", "user.a", "user.höhe"]);
        assert_eq!(node.get_xattr(b"user.a").unwrap().unwrap(), b"first");
        assert_eq!(node.get_xattr(b"trusted.b").unwrap().unwrap(), b"");
        assert_eq!(node.get_xattr(b"security.c").unwrap().unwrap(), [3; 300]);

        assert_fails!(node.set_xattr(b"user.a", b"x", XattrMode::Create), Exists);
        assert_fails!(node.set_xattr(b"user.z", b"x", XattrMode::Replace), NoAttribute);
        node.set_xattr(b"user.a", &[1; 200], XattrMode::Replace).unwrap();
        node.set_xattr(b"security.c", b"small", XattrMode::Any).unwrap();
        assert_eq!(node.get_xattr(b"user.a").unwrap().unwrap(), [1; 200]);
        assert_eq!(node.get_xattr(b"security.c").unwrap().unwrap(), b"small");
        volume.sync().unwrap();
        node.remove_xattr(b"security.c").unwrap();
        assert_fails!(node.remove_xattr(b"security.c"), NoAttribute);
        assert_eq!(names(&node), ["trusted.b", "user.a", "user.höhe"]);
    });
}

#[test]
fn an_attribute_block_is_counted_and_freed() {
    on_each_kind(|volume| {
        let node = file(volume, "file");
        let (space, sectors) = (volume.space(), node.metadata().sectors);
        node.set_xattr(b"user.large", &[7; 600], XattrMode::Any).unwrap();
        let used = space.free_blocks - volume.space().free_blocks;
        assert_eq!(used, 1);
        assert_eq!(node.metadata().sectors - sectors, u64::from(volume.info().block_size) / 512);
        node.remove_xattr(b"user.large").unwrap();
        assert_eq!((volume.space(), node.metadata().sectors), (space, sectors));

        node.set_xattr(b"user.large", &[7; 600], XattrMode::Any).unwrap();
        volume.remove_file("/file").unwrap();
        drop(node);
        volume.sync().unwrap();
        assert_eq!(volume.space().free_blocks, space.free_blocks);
    });
}

#[test]
fn operations_that_linux_refuses_are_refused() {
    on_each_kind(|volume| {
        let node = file(volume, "file");
        let set = |name: &[u8], value: &[u8]| node.set_xattr(name, value, XattrMode::Any);
        assert_fails!(set(b"", b""), OutOfRange);
        assert_fails!(set(&[b"user.".as_slice(), &[b'n'; 251]].concat(), b""), OutOfRange);
        set(&[b"user.".as_slice(), &[b'n'; 250]].concat(), b"").unwrap();
        assert_fails!(set(b"user.", b""), Invalid);
        assert_fails!(set(b"user.a\0b", b""), Invalid);
        assert_fails!(set(b"other.a", b""), Unsupported);
        assert_fails!(set(b"system.a", b""), Unsupported);
        assert_fails!(node.get_xattr(b"comment"), Unsupported);
        assert_fails!(set(b"user.a", &[0; 65537]), TooBig);
        assert_fails!(set(b"user.a", &[0; 65536]), NoSpace);
        assert_eq!(set(b"user.a", &[0; 65537]).unwrap_err().to_errno(), libc::E2BIG);
        assert_eq!(node.remove_xattr(b"user.a").unwrap_err().to_errno(), libc::ENODATA);
        assert_eq!(set(b"", b"").unwrap_err().to_errno(), libc::ERANGE);

        let link = volume.symlink("/link", "file").unwrap();
        assert_fails!(link.set_xattr(b"user.a", b"x", XattrMode::Any), NotPermitted);
        assert_eq!(link.get_xattr(b"user.a").unwrap(), None);
        link.set_xattr(b"trusted.a", b"x", XattrMode::Any).unwrap();
        let long = volume.symlink("/long", "t".repeat(100)).unwrap();
        long.set_xattr(b"trusted.a", &[5; 500], XattrMode::Any).unwrap();
        assert_eq!(volume.read_link("/long").unwrap(), Path::new(&"t".repeat(100)));
    });
}

#[test]
fn a_volume_gets_the_feature_with_its_first_attribute() {
    let Some(image) = Image::mke2fs(8, &["-O", "^ext_attr"]) else { return };
    let volume = image.open();
    assert_eq!(volume.root().unwrap().list_xattr().unwrap().len(), 0);
    volume.root().unwrap().set_xattr(b"user.a", b"b", XattrMode::Any).unwrap();
    volume.close().unwrap();
    image.fsck();
    let features = image.debugfs("stats");
    assert!(features.is_empty() || features.contains(" ext_attr "), "{features}");
}

#[test]
fn debugfs_and_parext4_read_each_others_attributes() {
    for kind in KINDS {
        let Some(image) = Image::mke2fs(8, kind) else { return };
        let volume = image.open();
        let node = file(&volume, "file");
        for n in 1..6_u8 {
            let name = format!("user.name-{}", "x".repeat(5 - usize::from(n)));
            node.set_xattr(name.as_bytes(), &vec![b'a' + n; usize::from(n) * 13], XattrMode::Any).unwrap();
        }
        node.set_xattr(b"security.selinux", &[b'k'; 300], XattrMode::Any).unwrap();
        drop(node);
        volume.close().unwrap();
        image.fsck();
        let list = image.debugfs("ea_list /file");
        if list.is_empty() {
            return;
        }
        for n in 1..6_u8 {
            let name = format!("user.name-{}", "x".repeat(5 - usize::from(n)));
            let value = image.debugfs(&format!("ea_get /file {name}"));
            let expected = String::from(char::from(b'a' + n)).repeat(usize::from(n) * 13);
            assert!(value.contains(&format!("\"{expected}\"")), "{kind:?}: {name}: {value}");
        }
        assert!(image.debugfs("ea_get /file security.selinux").contains(&"k".repeat(300)));

        image.debugfs_write("ea_set /file user.debugfs written");
        image.debugfs_write("ea_rm /file security.selinux");
        image.debugfs_write(&format!("ea_set /file trusted.large {}", "l".repeat(200)));
        let volume = image.open();
        let node = volume.resolve("/file").unwrap();
        assert_eq!(node.get_xattr(b"user.debugfs").unwrap().unwrap(), b"written");
        assert_eq!(node.get_xattr(b"trusted.large").unwrap().unwrap(), [b'l'; 200]);
        assert_eq!(node.get_xattr(b"security.selinux").unwrap(), None);
        assert_eq!(names(&node).len(), 7);
        for name in node.list_xattr().unwrap() {
            node.remove_xattr(&name).unwrap();
        }
        drop(node);
        volume.close().unwrap();
        image.fsck();
    }
}

/// Threads that change attributes of one inode do not lose each other's changes.
#[test]
fn threads_share_an_inode() {
    on_each_kind(|volume| {
        let dir = volume.root().unwrap().mkdir(b"dir", &new()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let dir = &dir;
                scope.spawn(move || {
                    let name = format!("user.{thread}");
                    for round in 0..40 {
                        let len = 1 + usize::from(round % 5) * 30;
                        dir.set_xattr(name.as_bytes(), &vec![round; len], XattrMode::Any).unwrap();
                        assert_eq!(dir.get_xattr(name.as_bytes()).unwrap().unwrap(), vec![round; len]);
                        if round % 7 == 6 {
                            dir.remove_xattr(name.as_bytes()).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(names(&dir), ["user.0", "user.1", "user.2", "user.3"]);
    });
}

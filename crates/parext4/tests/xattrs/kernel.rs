//! Attributes that the kernel sets are read here, and vice versa.

use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};

use super::{Image, KINDS, VALUE_KINDS, file, full_list, names, new};
use parext4::XattrMode;

fn get(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 8192];
    let len = getxattr(path, name, &mut value[..]).unwrap();
    value.truncate(len);
    value
}

fn list(path: &Path) -> Vec<String> {
    let mut bytes = vec![0_u8; 8192];
    let len = listxattr(path, &mut bytes[..]).unwrap();
    let mut names: Vec<_> = bytes[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8(name.to_vec()).unwrap())
        .collect();
    names.sort();
    names
}

fn set(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

#[test]
fn the_kernel_reads_and_changes_attributes_of_parext4() {
    for kind in KINDS.iter().chain(&VALUE_KINDS) {
        let Some(image) = Image::mke2fs(8, kind) else { return };
        let volume = image.open();
        let node = file(&volume, "file");
        let values =
            [("user.höhe", 10), ("user.b", 0), ("trusted.c", 100), ("user.large", 400), ("user.a", 60)];
        for (name, len) in values {
            node.set_xattr(name.as_bytes(), &vec![7; len], XattrMode::Any).unwrap();
        }
        node.set_xattr(b"system.posix_acl_access", &full_list(), XattrMode::Any).unwrap();
        let all = names(&node);
        drop(node);
        let dir = volume.root().unwrap().mkdir(b"dir", &new()).unwrap();
        dir.set_xattr(b"system.posix_acl_default", &full_list(), XattrMode::Any).unwrap();
        drop(dir);
        volume.close().unwrap();
        image.fsck();

        let mut mounted = false;
        image.with_kernel(|root| {
            mounted = true;
            let path = root.join("file");
            assert_eq!(list(&path), all);
            for (name, len) in values {
                assert_eq!(get(&path, name), vec![7; len], "{kind:?}: {name}");
            }
            assert_eq!(get(&path, "system.posix_acl_access"), full_list());
            set(&path, "user.b", &[8; 90]);
            set(&path, "user.new", b"from the kernel");
            removexattr(&path, "user.large").unwrap();
            std::fs::write(root.join("dir/child"), b"").unwrap();
            assert_eq!(get(&root.join("dir/child"), "system.posix_acl_access").len(), full_list().len());
        });
        if !mounted {
            return;
        }
        image.fsck();
        let volume = image.open();
        let node = volume.resolve("/file").unwrap();
        let get = |name: &str| node.get_xattr(name.as_bytes()).unwrap();
        assert_eq!(get("user.b").unwrap(), [8; 90]);
        assert_eq!(get("user.new").unwrap(), b"from the kernel");
        assert_eq!(get("user.large"), None);
        assert_eq!(get("trusted.c").unwrap(), [7; 100]);
        assert_eq!(get("system.posix_acl_access").unwrap(), full_list());
        let child = volume.resolve("/dir/child").unwrap();
        assert_eq!(names(&child), ["system.posix_acl_access"]);
        node.set_xattr(b"user.new", &[9; 200], XattrMode::Replace).unwrap();
        node.remove_xattr(b"user.a").unwrap();
        drop((node, child));
        volume.close().unwrap();
        image.fsck();
    }
}

/// Blocks that the kernel shares between inodes are unshared here, and stay shared there.
#[test]
fn blocks_that_the_kernel_shares() {
    for features in ["metadata_csum", "^metadata_csum"] {
        let Some(image) = Image::mke2fs(8, &["-b", "1024", "-I", "128", "-O", features]) else { return };
        let volume = image.open();
        for name in ["a", "b", "c"] {
            file(&volume, name);
        }
        let before = volume.space().free_blocks;
        volume.close().unwrap();
        let mut mounted = false;
        image.with_kernel(|root| {
            mounted = true;
            for name in ["a", "b", "c"] {
                set(&root.join(name), "user.same", &[b's'; 200]);
            }
        });
        if !mounted {
            return;
        }
        let volume = image.open();
        assert_eq!(before - volume.space().free_blocks, 1, "the kernel shares the block");
        let node = volume.resolve("/b").unwrap();
        node.set_xattr(b"user.other", b"o", XattrMode::Any).unwrap();
        volume.remove_file("/c").unwrap();
        drop(node);
        volume.close().unwrap();
        image.fsck();
        image.with_kernel(|root| {
            assert_eq!(list(&root.join("a")), ["user.same"]);
            assert_eq!(list(&root.join("b")), ["user.other", "user.same"]);
            set(&root.join("b"), "user.more", b"m");
        });
        image.fsck();
    }
}

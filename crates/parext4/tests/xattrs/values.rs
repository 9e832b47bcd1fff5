//! Values in inodes of their own (`ea_inode`).

use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, lgetxattr, setxattr};
use rustix::io::Errno;

use testkit::access_list::{GROUP, MASK, OTHER, OWNER, USER};
use testkit::tool;

use super::{Image, VALUE_KINDS, file, full_list, list, names};
use parext4::{Error, InodeNo, InodeRef, NewInode, SetAttributes, Volume, XattrMode};

/// Lengths from one that fits the inode to the largest.
const LENGTHS: [usize; 6] = [10, 900, 1024, 5000, 20_000, 65_536];

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ len as u8).collect()
}

fn get(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 65_536];
    let len = getxattr(path, name, &mut value[..]).unwrap();
    value.truncate(len);
    value
}

/// Creates `/file` with a value in an inode of its own. Returns the numbers of both inodes.
fn file_with_value(volume: &Volume) -> (InodeNo, u32) {
    let node = file(volume, "file");
    node.set_xattr(b"user.v", &value(5000), XattrMode::Any).unwrap();
    (node.ino(), node.ino().get() + 1)
}

fn images() -> impl Iterator<Item = Image> {
    VALUE_KINDS.into_iter().filter_map(|kind| Image::mke2fs(16, kind))
}

#[test]
fn the_kernel_reads_and_removes_values_of_parext4() {
    for image in images() {
        let volume = image.open();
        let (inodes, blocks) = (volume.space().free_inodes, volume.space().free_blocks);
        for name in ["a", "b"] {
            let node = file(&volume, name);
            for len in LENGTHS {
                node.set_xattr(format!("user.{len}").as_bytes(), &value(len), XattrMode::Create).unwrap();
            }
        }
        volume.close().unwrap();
        image.fsck();
        let mut mounted = false;
        image.with_kernel(|root| {
            mounted = true;
            for len in LENGTHS {
                assert_eq!(get(&root.join("a"), &format!("user.{len}")), value(len));
            }
            std::fs::remove_file(root.join("a")).unwrap();
        });
        image.fsck();
        let volume = image.open();
        if !mounted {
            volume.remove_file("/a").unwrap();
        }
        volume.remove_file("/b").unwrap();
        volume.sync().unwrap();
        assert_eq!((volume.space().free_inodes, volume.space().free_blocks), (inodes, blocks));
        volume.close().unwrap();
        image.fsck();
    }
}

/// Inodes with the same value share its inode in the kernel, and inodes with the same attributes
/// share a block.
#[test]
fn values_that_the_kernel_shares() {
    for image in images() {
        let volume = image.open();
        let inodes = volume.space().free_inodes;
        volume.close().unwrap();
        let mut mounted = false;
        image.with_kernel(|root| {
            mounted = true;
            for name in ["a", "b", "c", "d"] {
                std::fs::write(root.join(name), b"").unwrap();
                setxattr(root.join(name), "user.big", &value(9000), XattrFlags::empty()).unwrap();
                // With a second one in the block, which is shared.
                setxattr(root.join(name), "user.small", &value(300), XattrFlags::empty()).unwrap();
            }
        });
        if !mounted {
            return;
        }
        image.fsck();
        let volume = image.open();
        assert_eq!(inodes - volume.space().free_inodes, 5, "the kernel shares the value");
        let node = volume.resolve("/b").unwrap();
        assert_eq!(node.get_xattr(b"user.big").unwrap().unwrap(), value(9000));
        node.set_xattr(b"user.other", &value(200), XattrMode::Any).unwrap();
        volume.resolve("/c").unwrap().set_xattr(b"user.big", &value(8000), XattrMode::Replace).unwrap();
        volume.remove_file("/d").unwrap();
        drop(node);
        volume.close().unwrap();
        image.fsck();
        image.with_kernel(|root| {
            for (name, len) in [("a", 9000), ("b", 9000), ("c", 8000)] {
                assert_eq!(get(&root.join(name), "user.big"), value(len));
            }
            std::fs::remove_file(root.join("c")).unwrap();
        });
        image.fsck();
        let volume = image.open();
        for name in ["/a", "/b"] {
            volume.remove_file(name).unwrap();
        }
        volume.sync().unwrap();
        assert_eq!(volume.space().free_inodes, inodes);
        volume.close().unwrap();
        image.fsck();
    }
}

/// Threads change, remove and delete the users of one block that refers to one value. The last of
/// them deletes the value.
#[test]
fn the_last_user_of_a_shared_block_deletes_its_values() {
    const FILES: u32 = 60;
    for image in images() {
        let volume = image.open();
        let inodes = volume.space().free_inodes;
        volume.close().unwrap();
        let mut mounted = false;
        image.with_kernel(|root| {
            mounted = true;
            for nth in 0..FILES {
                let path = root.join(nth.to_string());
                std::fs::write(&path, b"").unwrap();
                // More than the inode has room for, so that the entry of the large value is in the
                // block too.
                setxattr(&path, "user.small", &value(300), XattrFlags::empty()).unwrap();
                let name = format!("user.{}", "n".repeat(100));
                setxattr(&path, name, &value(9000), XattrFlags::empty()).unwrap();
            }
        });
        if !mounted {
            return;
        }
        let volume = image.open();
        assert_eq!(inodes - volume.space().free_inodes, FILES + 1, "the kernel shares the value");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let volume = &volume;
                scope.spawn(move || {
                    for nth in (thread..FILES).step_by(4) {
                        let path = format!("/{nth}");
                        let node = volume.resolve(&path).unwrap();
                        match nth % 3 {
                            0 => node.set_xattr(b"user.own", &[7; 9], XattrMode::Any).unwrap(),
                            1 => node.remove_xattr(b"user.small").unwrap(),
                            _ => {}
                        }
                        drop(node);
                        volume.remove_file(&path).unwrap();
                    }
                });
            }
        });
        volume.sync().unwrap();
        assert_eq!(volume.space().free_inodes, inodes);
        volume.close().unwrap();
        image.fsck();
    }
}

#[test]
fn threads_replace_large_values() {
    for image in images() {
        let volume = image.open();
        let inodes = volume.space().free_inodes;
        let shared = file(&volume, "shared");
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (volume, shared) = (&volume, &shared);
                scope.spawn(move || {
                    let own = file(volume, &format!("own-{thread}"));
                    for n in 0..20_usize {
                        let bytes = value(5000 + 3000 * ((n + thread) % 4));
                        own.set_xattr(b"user.v", &bytes, XattrMode::Any).unwrap();
                        shared.set_xattr(b"user.v", &bytes, XattrMode::Any).unwrap();
                        let found = shared.get_xattr(b"user.v").unwrap().unwrap();
                        assert_eq!(found, value(found.len()));
                    }
                });
            }
        });
        assert_eq!(names(&shared), ["user.v"]);
        drop(shared);
        volume.close().unwrap();
        image.fsck();
        let volume = image.open();
        assert_eq!(inodes - volume.space().free_inodes, 10, "a file and its value, five times");
        volume.close().unwrap();
    }
}

#[test]
fn a_full_volume_keeps_the_old_value() {
    for image in images() {
        let volume = image.open();
        let node = file(&volume, "file");
        node.set_xattr(b"user.v", &value(60_000), XattrMode::Any).unwrap();
        let refused = (0..).find_map(|n| {
            let filler = file(&volume, &format!("filler-{n}"));
            filler.set_xattr(b"user.v", &value(65_536), XattrMode::Any).err()
        });
        assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?}");
        let refused = node.set_xattr(b"user.v", &value(65_536), XattrMode::Any);
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        assert_eq!(node.get_xattr(b"user.v").unwrap().unwrap(), value(60_000));
        drop(node);
        volume.close().unwrap();
        image.fsck();
    }
}

/// Values that cannot be read are errors, and the rest of the volume works. An inode that is still
/// a value's goes with its last entry.
#[test]
fn damaged_values_are_errors() {
    type Damage = fn(&Image, u32);
    let damages: [(&str, bool, Damage); 6] = [
        ("no flag", false, |image, ino| image.debugfs_write(&format!("sif <{ino}> flags 0x80000"))),
        ("size", true, |image, ino| image.debugfs_write(&format!("sif <{ino}> size 5001"))),
        ("hash", true, |image, ino| image.debugfs_write(&format!("sif <{ino}> atime 0x12345678"))),
        ("symbolic link", true, |image, ino| image.debugfs_write(&format!("sif <{ino}> mode 0120600"))),
        ("zeros", false, |image, ino| image.debugfs_write(&format!("clri <{ino}>"))),
        ("no blocks", true, |image, ino| image.debugfs_write(&format!("punch <{ino}> 0"))),
    ];
    for (what, is_value, damage) in damages {
        let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "ea_inode"]) else { return };
        let volume = image.open();
        let inodes = volume.space().free_inodes;
        let nodes = ["removed", "replaced"].map(|name| {
            let node = file(&volume, name);
            node.set_xattr(b"user.v", &value(5000), XattrMode::Any).unwrap();
            node.ino().get() + 1
        });
        volume.close().unwrap();
        for ino in nodes {
            damage(&image, ino);
        }
        let volume = image.open();
        for name in ["/removed", "/replaced"] {
            let node = volume.resolve(name).unwrap();
            assert_eq!(names(&node), ["user.v"], "{what}");
            let read = node.get_xattr(b"user.v");
            assert!(matches!(read, Err(Error::Corrupt(_))), "{what}: {read:?}");
        }
        let replaced = volume.resolve("/replaced").unwrap();
        let replacement = replaced.set_xattr(b"user.v", &value(6000), XattrMode::Replace);
        assert_eq!(replacement.is_ok(), is_value, "{what}: {replacement:?}");
        drop(replaced);
        ["/removed", "/replaced"].into_iter().for_each(|name| volume.remove_file(name).unwrap());
        assert!(!is_value || volume.space().free_inodes == inodes, "{what}: values stay");
        drop(file(&volume, "other"));
        volume.close().unwrap();
        if is_value {
            image.fsck();
        }
    }
}

/// Of values that have values, e2fsck accepts a chain of any length.
#[test]
fn deleting_a_file_deletes_the_values_of_its_values() {
    const LONGEST: u32 = 30;
    for features in ["ea_inode", "ea_inode,quota"] {
        let Some(image) = Image::mke2fs(8, &["-b", "1024", "-I", "256", "-O", features]) else { return };
        let volume = image.open();
        let (inodes, blocks) = (volume.space().free_inodes, volume.space().free_blocks);
        let (_, first) = file_with_value(&volume);
        volume.close().unwrap();
        let bytes = image.path().with_file_name("value");
        std::fs::write(&bytes, value(1000)).unwrap();
        for ino in first..first + LONGEST {
            image.debugfs_write(&format!("ea_set -f {} <{ino}> user.w", bytes.display()));
        }
        // debugfs does not count the blocks.
        let _ = tool(Command::new("e2fsck").arg("-fy").arg(image.path()));
        image.fsck();
        let volume = image.open();
        assert_eq!(volume.space().free_inodes, inodes - 2 - LONGEST, "{features}");
        volume.remove_file("/file").unwrap();
        volume.sync().unwrap();
        assert_eq!((volume.space().free_inodes, volume.space().free_blocks), (inodes, blocks), "{features}");
        volume.close().unwrap();
        image.fsck();
    }
}

/// e2fsck finds attributes whatever the features of the volume are.
#[test]
fn deleting_a_file_deletes_its_values_without_the_feature() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "ea_inode"]) else { return };
    let volume = image.open();
    let inodes = volume.space().free_inodes;
    file(&volume, "file").set_xattr(b"user.v", &value(5000), XattrMode::Any).unwrap();
    volume.close().unwrap();
    image.debugfs_write("feature -ea_inode");
    image.fsck();
    let volume = image.open();
    volume.remove_file("/file").unwrap();
    assert_eq!(volume.space().free_inodes, inodes);
    volume.close().unwrap();
    image.fsck();
}

/// Lustre names the owner in the inode of a value, and counts neither entries nor, for the owner,
/// blocks. A value with these numbers that fits the hash of its entry is counted all the same.
#[test]
fn deleting_a_file_deletes_values_that_name_their_owner() {
    for is_of_lustre in [false, true] {
        let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "ea_inode"]) else { return };
        let volume = image.open();
        let inodes = volume.space().free_inodes;
        let (owner, ino) = file_with_value(&volume);
        volume.close().unwrap();
        image.debugfs_write(&format!("sif <{ino}> mtime @{owner}"));
        for ino in [owner.get(), ino] {
            image.debugfs_write(&format!("sif <{ino}> generation 7"));
        }
        if is_of_lustre {
            image.debugfs_write(&format!("sif <{ino}> atime @1"));
            image.debugfs_write(&format!("sif <{owner}> blocks 0"));
        }
        image.fsck();
        let volume = image.open();
        volume.remove_file("/file").unwrap();
        assert_eq!(volume.space().free_inodes, inodes, "{is_of_lustre}");
        volume.close().unwrap();
        image.fsck();
    }
}

/// e2fsck tells a short target from the blocks of a longer one by the inode's blocks, unless one of
/// them is for attributes.
#[test]
fn a_short_symbolic_link_with_a_large_value_has_a_block_of_attributes() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-I", "256", "-O", "ea_inode"]) else { return };
    let volume = image.open();
    let (inodes, blocks) = (volume.space().free_inodes, volume.space().free_blocks);
    let link = volume.root().unwrap().symlink(b"link", b"target", &NewInode::new()).unwrap();
    link.set_xattr(b"trusted.small", b"in the inode", XattrMode::Any).unwrap();
    link.set_xattr(b"trusted.large", &value(3000), XattrMode::Any).unwrap();
    drop(link);
    volume.close().unwrap();
    image.fsck();
    image.with_kernel(|root| {
        assert_eq!(std::fs::read_link(root.join("link")).unwrap(), Path::new("target"));
        let mut bytes = vec![0; 3000];
        assert_eq!(lgetxattr(root.join("link"), "trusted.large", &mut bytes[..]), Ok(3000));
        assert_eq!(bytes, value(3000));
    });
    let volume = image.open();
    let link = volume.root().unwrap().lookup(b"link").unwrap();
    assert_eq!(link.get_xattr(b"trusted.large").unwrap(), Some(value(3000)));
    link.remove_xattr(b"trusted.large").unwrap();
    drop(link);
    volume.sync().unwrap();
    image.fsck();
    volume.remove_file("/link").unwrap();
    volume.sync().unwrap();
    assert_eq!((volume.space().free_inodes, volume.space().free_blocks), (inodes, blocks));
    volume.close().unwrap();
    image.fsck();
}

/// A damaged number of references, or a list of orphans that names a value beside its owner, does
/// not stop the volume.
#[test]
fn values_that_count_too_few_entries_are_deleted_once() {
    for is_orphan in [false, true] {
        let options = ["-b", "1024", "-O", "ea_inode,^orphan_file"];
        let Some(image) = Image::mke2fs(8, &options) else { return };
        let volume = image.open();
        let inodes = volume.space().free_inodes;
        let (owner, ino) = file_with_value(&volume);
        volume.close().unwrap();
        if is_orphan {
            image.debugfs_write("unlink /file");
            image.debugfs_write(&format!("sif <{owner}> links_count 0"));
            image.debugfs_write(&format!("sif <{owner}> dtime @{ino}"));
            image.debugfs_write(&format!("ssv last_orphan {owner}"));
        } else {
            image.debugfs_write(&format!("sif <{ino}> version 0"));
        }
        let volume = image.open();
        if !is_orphan {
            volume.remove_file("/file").unwrap();
        }
        volume.sync().unwrap();
        assert_eq!(volume.space().free_inodes, inodes, "{is_orphan}");
        volume.close().unwrap();
        image.fsck();
    }
}

/// A name or an identifier cannot open the inode of a value.
#[test]
fn a_value_is_no_file() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "ea_inode"]) else { return };
    let volume = image.open();
    let (_, ino) = file_with_value(&volume);
    volume.close().unwrap();
    image.debugfs_write(&format!("ln <{ino}> name"));
    let volume = image.open();
    assert!(matches!(volume.resolve("/name"), Err(Error::Corrupt(_))));
    volume.close().unwrap();
}

/// Sets attributes of a node until it has room for the entry of an access list, but not for the
/// list of [`full_list`].
fn fill(node: &InodeRef) {
    for n in 100.. {
        if node.set_xattr(format!("user.{n}").as_bytes(), b"", XattrMode::Create).is_err() {
            return node.remove_xattr(format!("user.{}", n - 1).as_bytes()).unwrap();
        }
    }
}

#[test]
fn permissions_change_an_access_list_in_an_inode_of_its_own() {
    let access = b"system.posix_acl_access";
    for image in images() {
        let volume = image.open();
        let inodes = volume.space().free_inodes;
        let node = file(&volume, "file");
        fill(&node);
        node.set_xattr(access, &full_list(), XattrMode::Create).unwrap();
        node.set_attributes(&SetAttributes::new().permissions(0o620)).unwrap();
        let changed = list(&[(OWNER, 6), (USER, 6), (GROUP, 4), (MASK, 2), (OTHER, 0)]);
        assert_eq!(node.get_xattr(access).unwrap().unwrap(), changed);
        assert_eq!(node.metadata().permissions, 0o620);
        drop(node);
        assert_eq!(inodes - volume.space().free_inodes, 2, "the file and its list");
        volume.close().unwrap();
        image.fsck();
    }
}

/// The list leaves its inode in the transaction that changes the owner.
#[test]
fn a_new_owner_is_charged_for_the_values_that_new_permissions_leave() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "ea_inode,quota"]) else { return };
    let volume = image.open();
    let node = file(&volume, "file");
    fill(&node);
    node.set_xattr(b"system.posix_acl_access", &full_list(), XattrMode::Create).unwrap();
    let inodes = volume.space().free_inodes;
    (100..110).for_each(|n| node.remove_xattr(format!("user.{n}").as_bytes()).unwrap());
    node.set_attributes(&SetAttributes::new().permissions(0o620).uid(1000)).unwrap();
    drop(node);
    assert_eq!(volume.space().free_inodes, inodes + 1, "the list is in the inode or its block");
    volume.close().unwrap();
    image.fsck();
}

/// Values in the block leave an eighth of it, and at most 1024 bytes, to entries. A value that
/// would not gets an inode, except one that replaces a value of the same length.
#[test]
fn the_block_has_room_for_entries_as_in_the_kernel() {
    let name = |letter: char| format!("user.{}", letter.to_string().repeat(200));
    let long = |len| vec![("user.a".to_owned(), len), (name('b'), 20), (name('c'), 20), (name('d'), 20)];
    for (block, inode) in [(1024, 128), (1024, 256), (4096, 128), (4096, 256)] {
        let most = block - block / 8;
        let mut orders = [most - 4, most - 1, most, most + 1, block - 57, block - 56].map(long).to_vec();
        orders.push((0..60).map(|n| (format!("user.{n}"), 100)).collect());
        // A value in the block that is replaced, by one of the same length and by values of other
        // lengths.
        orders.push(
            [most, most - 2, most + 4, most, 10, most + 1].map(|len| ("user.a".to_owned(), len)).into(),
        );
        let (block, inode) = (block.to_string(), inode.to_string());
        let options = ["-b", &block, "-I", &inode, "-N", "2000", "-O", "ea_inode"];
        let (Some(ours), Some(theirs)) = (Image::mke2fs(16, &options), Image::mke2fs(16, &options)) else {
            return;
        };
        // The kernel shares an inode among equal values.
        let fill = |order: usize, step: usize, len: usize| -> Vec<u8> {
            [order as u8, step as u8].into_iter().chain((0..).map(|at: usize| at as u8)).take(len).collect()
        };
        let mut in_kernel = Vec::new();
        theirs.with_kernel(|root| {
            for (n, order) in orders.iter().enumerate() {
                let path = root.join(n.to_string());
                std::fs::write(&path, b"").unwrap();
                in_kernel.extend(order.iter().enumerate().map(|(step, (name, len))| {
                    let set = setxattr(&path, name, &fill(n, step, *len), XattrFlags::empty());
                    assert!(matches!(set, Ok(()) | Err(Errno::NOSPC)), "{set:?}");
                    (n, step, set.is_ok(), rustix::fs::statvfs(root).unwrap().f_ffree)
                }));
            }
        });
        if in_kernel.is_empty() {
            return;
        }
        let volume = ours.open();
        let mut expected = in_kernel.into_iter();
        for (n, order) in orders.iter().enumerate() {
            let node = file(&volume, &n.to_string());
            for (step, (name, len)) in order.iter().enumerate() {
                let set = node.set_xattr(name.as_bytes(), &fill(n, step, *len), XattrMode::Any);
                assert!(matches!(set, Ok(()) | Err(Error::NoSpace)), "{set:?}");
                let found = (n, step, set.is_ok(), volume.space().free_inodes.into());
                assert_eq!(Some(found), expected.next(), "{len} bytes, blocks of {block}, inodes of {inode}");
            }
        }
        volume.close().unwrap();
        ours.fsck();
    }
}

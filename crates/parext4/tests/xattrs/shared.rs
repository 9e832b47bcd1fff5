//! A block that several inodes share is copied before it changes, and goes with the last of them.

use std::process::Command;

use super::{Image, file, names};
use crate::common::tool;
use parext4::XattrMode;

const FILES: usize = 12;

/// A volume whose files `0` to `11` share the block with `user.test`; `None` without debugfs.
fn shared(features: &str) -> Option<Image> {
    let image = Image::mke2fs(8, &["-b", "1024", "-I", "128", "-O", features])?;
    let volume = image.open();
    for n in 0..FILES {
        file(&volume, &n.to_string());
    }
    volume.close().unwrap();
    image.debugfs_write("ea_set /0 user.test value");
    let stat = image.debugfs("stat /0");
    let block = stat.split("File ACL: ").nth(1)?.split_whitespace().next()?;
    let script = image.path().with_file_name("script");
    let mut commands = format!("zap_block -o 4 -l 1 -p {FILES} {block}\n");
    for n in 1..FILES {
        commands += &format!("sif /{n} file_acl {block}\nsif /{n} blocks 2\n");
    }
    std::fs::write(&script, commands).unwrap();
    tool(Command::new("debugfs").arg("-w").arg("-f").arg(&script).arg(image.path()))?;
    image.fsck();
    Some(image)
}

#[test]
fn a_change_is_seen_by_one_alone() {
    let Some(image) = shared("^metadata_csum") else { return };
    let volume = image.open();
    let before = volume.space().free_blocks;
    let nodes: Vec<_> = (0..FILES).map(|n| volume.resolve(n.to_string()).unwrap()).collect();
    nodes[3].set_xattr(b"user.test", b"mine", XattrMode::Replace).unwrap();
    nodes[4].remove_xattr(b"user.test").unwrap();
    nodes[5].set_xattr(b"user.more", b"x", XattrMode::Create).unwrap();
    for (n, node) in nodes.iter().enumerate() {
        let value = node.get_xattr(b"user.test").unwrap();
        match n {
            3 => assert_eq!(value.unwrap(), b"mine"),
            4 => assert_eq!(value, None),
            _ => assert_eq!(value.unwrap(), b"value"),
        }
    }
    assert_eq!(names(&nodes[5]), ["user.more", "user.test"]);
    assert_eq!(before - volume.space().free_blocks, 2);
    drop(nodes);
    volume.close().unwrap();
    image.fsck();
}

/// All users change or leave the block at once.
#[test]
fn the_last_user_frees_the_block() {
    let Some(image) = shared("^metadata_csum") else { return };
    let volume = image.open();
    let before = volume.space().free_blocks;
    std::thread::scope(|scope| {
        for n in 0..FILES {
            let node = volume.resolve(n.to_string()).unwrap();
            let volume = &volume;
            scope.spawn(move || match n % 3 {
                0 => node.set_xattr(b"user.own", n.to_string().as_bytes(), XattrMode::Any).unwrap(),
                1 => node.remove_xattr(b"user.test").unwrap(),
                _ => volume.remove_file(n.to_string()).unwrap(),
            });
        }
    });
    volume.sync().unwrap();
    // Four have blocks of their own now, one was free before: their inodes' and nobody else's.
    assert_eq!(volume.space().free_blocks, before + 1 - 4);
    for n in (0..FILES).step_by(3) {
        let node = volume.resolve(n.to_string()).unwrap();
        assert_eq!(node.get_xattr(b"user.own").unwrap().unwrap(), n.to_string().as_bytes());
        assert_eq!(node.get_xattr(b"user.test").unwrap().unwrap(), b"value");
    }
    volume.close().unwrap();
    image.fsck();
}

//! A block that several inodes share is copied before it changes, and freed with its last inode.

use std::process::Command;

use super::{Image, names, new};
use parext4::XattrMode;
use testkit::tool;

const THREADS: usize = 4;
const FILES: usize = THREADS * 30;

/// Each thread has a directory of its own.
pub fn path(file: usize) -> String {
    format!("/{}/{file}", file % THREADS)
}

/// Makes a volume whose files all share the block with `user.test`. Returns `None` without debugfs.
pub fn shared() -> Option<Image> {
    let image = Image::mke2fs(8, &["-b", "1024", "-I", "128", "-O", "^metadata_csum"])?;
    let volume = image.open();
    for thread in 0..THREADS {
        let dir = volume.create_dir(format!("/{thread}"), 0o755).unwrap();
        for file in (thread..FILES).step_by(THREADS) {
            dir.create(file.to_string().as_bytes(), &new()).unwrap();
        }
    }
    volume.close().unwrap();
    image.debugfs_write(&format!("ea_set {} user.test value", path(0)));
    let stat = image.debugfs(&format!("stat {}", path(0)));
    let block = stat.split("File ACL: ").nth(1)?.split_whitespace().next()?;
    let script = image.path().with_file_name("script");
    let mut commands = format!("zap_block -o 4 -l 1 -p {FILES} {block}\n");
    for file in 1..FILES {
        let path = path(file);
        commands += &format!("sif {path} file_acl {block}\nsif {path} blocks 2\n");
    }
    std::fs::write(&script, commands).unwrap();
    tool(Command::new("debugfs").arg("-w").arg("-f").arg(&script).arg(image.path()))?;
    image.fsck();
    Some(image)
}

#[test]
fn a_change_is_seen_by_one_alone() {
    let Some(image) = shared() else { return };
    let volume = image.open();
    let before = volume.space().free_blocks;
    let nodes: Vec<_> = (0..FILES).map(|file| volume.resolve(path(file)).unwrap()).collect();
    nodes[3].set_xattr(b"user.test", b"mine", XattrMode::Replace).unwrap();
    nodes[4].remove_xattr(b"user.test").unwrap();
    nodes[5].set_xattr(b"user.more", b"x", XattrMode::Create).unwrap();
    for (file, node) in nodes.iter().enumerate() {
        let value = node.get_xattr(b"user.test").unwrap();
        match file {
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

/// Several threads change, remove and delete the users of the block.
#[test]
fn the_last_user_frees_the_block() {
    let Some(image) = shared() else { return };
    let volume = image.open();
    let before = volume.space().free_blocks;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let volume = &volume;
            scope.spawn(move || {
                for file in (thread..FILES).step_by(THREADS) {
                    let node = volume.resolve(path(file)).unwrap();
                    match file % 3 {
                        0 => node.set_xattr(b"user.own", &[b'o'; 5], XattrMode::Any).unwrap(),
                        1 => node.remove_xattr(b"user.test").unwrap(),
                        _ => volume.remove_file(path(file)).unwrap(),
                    }
                }
            });
        }
    });
    volume.sync().unwrap();
    // Every third inode has a block of its own now, and the shared block is free.
    assert_eq!(volume.space().free_blocks, before + 1 - FILES as u64 / 3);
    for file in (0..FILES).step_by(3) {
        let node = volume.resolve(path(file)).unwrap();
        assert_eq!(names(&node), ["user.own", "user.test"]);
    }
    volume.close().unwrap();
    image.fsck();
}

//! Tests of the replay.

use super::*;
use crate::{MemDevice, MkfsOptions, NewInode, Volume, VolumeOptions, mkfs};
use parext4_format::FileBlock;

/// With all inodes of a log in memory, an image of 16 MiB took 290 MiB.
#[test]
fn a_replay_keeps_no_inode_that_has_a_name() {
    let device = std::sync::Arc::new(MemDevice::new(16 << 20));
    mkfs(&*device, &MkfsOptions::new().device_is_zero(true)).unwrap();
    let options = VolumeOptions::new().commit_interval(None);
    let volume = Volume::open_device(device, &options).unwrap();
    let root = volume.root().unwrap();
    let files: Vec<_> =
        (0..20).map(|n| root.create(n.to_string().as_bytes(), &NewInode::new()).unwrap().ino()).collect();
    let mut replay = Replay::new(&volume.engine);
    let mut make = |change| {
        replay.make(&change).unwrap();
        replay.drop_named();
        (replay.nodes.len(), replay.unnamed.len())
    };
    for &ino in &files {
        assert_eq!(make(Change::DelRange { ino, start: FileBlock(0), len: 1 }), (0, 0));
    }
    let name = |n: usize| Name { parent: root.ino(), ino: files[n], name: n.to_string().into_bytes().into() };
    assert_eq!(make(Change::Unlink(name(3))), (0, 1));
    assert_eq!(make(Change::Unlink(name(4))), (0, 2));
    // The inode has a name again.
    assert_eq!(make(Change::Link(name(3))), (0, 1));
    drop(replay);
    assert!(root.lookup(b"3").is_ok() && root.lookup(b"4").is_err());
    drop(root);
    volume.close().unwrap();
}

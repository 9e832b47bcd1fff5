//! Crashes during changes of attributes: each change is complete or absent, and synced changes
//! stay.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use super::file;
use parext4::device::RecordingDevice;
use parext4::{Device, InodeRef, MemDevice, Volume, XattrMode};
use parext4_format::features::Incompat;
use parext4_format::superblock::Superblock;
use testkit::crash_states::{Timeline, for_each_crash_state};
use testkit::rng::Rng;
use testkit::volume::{Shape, assert_clean, assert_recovers, untimed};

const NAMES: u64 = 6;
const CHANGES: usize = 60;
/// e2fsck checks one of this many consecutive crash states.
const SAMPLE: usize = 12;

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

fn attributes(node: &InodeRef) -> Attributes {
    let value = |name: &[u8]| node.get_xattr(name).unwrap().unwrap();
    node.list_xattr().unwrap().into_iter().map(|name| (name.clone(), value(&name))).collect()
}

/// Returns one random change. Some move attributes between the inode and a block.
fn change(node: &InodeRef, rng: &mut Rng) {
    let name = format!("user.{}", rng.below(NAMES));
    if rng.chance(30) {
        let _ = node.remove_xattr(name.as_bytes());
    } else {
        let len = [0, 8, 40, 300, 700, 3000][usize::try_from(rng.below(6)).unwrap()];
        let value = vec![u8::try_from(rng.below(256)).unwrap(); len];
        let _ = node.set_xattr(name.as_bytes(), &value, XattrMode::Any);
    }
}

/// Adds the feature `ea_inode`, so that large values get inodes.
fn with_value_inodes(device: &MemDevice) {
    let mut bytes = vec![0; Superblock::SIZE];
    device.read_at(Superblock::OFFSET, &mut [IoSliceMut::new(&mut bytes)]).unwrap();
    let mut superblock = Superblock::parse(&bytes).unwrap();
    superblock.set_incompat(superblock.incompat() | Incompat::EA_INODE);
    superblock.encode(&mut bytes);
    device.write_at(Superblock::OFFSET, &[IoSlice::new(&bytes)]).unwrap();
}

#[test]
fn a_change_is_whole_after_a_crash() {
    for (block_size, seed, inodes) in [(1024, 1, false), (4096, 2, false), (1024, 3, true)] {
        let base = Shape::new(8, block_size, true).make_poisoned();
        if inodes {
            with_value_inodes(&base);
        }
        let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        let node = file(&volume, "file");
        volume.sync().unwrap();
        let mut rng = Rng::new(seed, 0);
        let mut timeline = Timeline::new(&device, Attributes::new());
        for n in 0..CHANGES {
            change(&node, &mut rng);
            timeline.add(attributes(&node));
            if n % 4 == 3 {
                volume.sync().unwrap();
                timeline.sync();
            }
        }
        drop(node);
        volume.close().unwrap();

        let mut nth = 0;
        for_each_crash_state(&device, &base, &mut rng, |crash| {
            let Some(allowed) = timeline.allowed(&crash) else { return };
            nth += 1;
            if nth % SAMPLE == 0 {
                assert_recovers(&crash.image, &crash.what);
            }
            check(crash.image, allowed, &crash.what);
        });
        assert!(nth > 50);
    }
}

fn check(image: MemDevice, allowed: &[Attributes], what: &str) {
    let image = Arc::new(image);
    let volume = Volume::open_device(Arc::clone(&image) as Arc<dyn Device>, &untimed()).unwrap();
    let node = volume.resolve("/file").unwrap();
    let found = attributes(&node);
    assert!(allowed.contains(&found), "{what}: {:?}", found.keys());
    drop(node);
    volume.close().unwrap();
    if what.ends_with("none of them") {
        assert_clean(&image, what);
    }
}

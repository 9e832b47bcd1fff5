//! Blocks that are reserved for root, and which users may allocate them.

use std::sync::Arc;

use parext4::{Device, Error, Result, Volume, without_reserved_blocks};

use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

const PIECE: usize = 64 << 10;

/// A way to use up space, a piece at a time.
type Way = fn(&Volume, u64) -> Result<()>;

const WAYS: [(&str, Way); 4] = [
    ("append", |volume, _| volume.direct_file("/file").and_then(|file| file.append(&[7; PIECE]).map(drop))),
    ("buffered", |volume, nth| {
        let file = volume.direct_file("/file")?.buffered()?;
        file.write_at(&[7; PIECE], nth * PIECE as u64).map(drop)
    }),
    ("allocate", |volume, nth| {
        volume.direct_file("/file")?.allocate(nth * PIECE as u64, PIECE as u64, false)
    }),
    ("mkdir", |volume, nth| volume.mkdir(format!("/dir{nth}"), 0o755).map(drop)),
];

/// Repeats until there is no space. Returns the number of repetitions.
fn use_up(volume: &Volume, way: Way, from: u64) -> u64 {
    for nth in from.. {
        match way(volume, nth) {
            Ok(()) => {}
            Err(Error::NoSpace) => return nth - from,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

#[test]
fn other_users_leave_the_blocks_reserved_for_root() {
    for (name, way) in WAYS {
        let shape = Shape { inode_ratio: Some(4096), ..Shape::new(16, 4096, true) };
        let device = Arc::new(shape.make());
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        volume.create_direct("/file").unwrap();
        let reserved = volume.space().reserved_blocks;
        assert!(reserved > 100);
        let went = without_reserved_blocks(|| use_up(&volume, way, 0));
        assert!(went > 10, "{name}");
        volume.sync().unwrap();
        let space = volume.space();
        let a_few = 2 * (PIECE as u64 / 4096);
        assert!(space.free_blocks >= reserved, "{name}: {space:?}");
        assert!(space.available_blocks < a_few, "{name}: {space:?}");
        // All users can overwrite data, and root can still allocate.
        if name != "mkdir" {
            without_reserved_blocks(|| {
                volume.direct_file("/file").unwrap().write_at(&[8; 4096], 4096).unwrap()
            });
        }
        assert!(use_up(&volume, way, went) > 0, "{name}");
        volume.sync().unwrap();
        let space = volume.space();
        assert!(space.free_blocks < reserved && space.available_blocks == 0, "{name}: {space:?}");
        volume.close().unwrap();
        assert_clean(&device, name);
    }
}

//! Full volumes: an operation that fails for lack of a block for the tree changes only its own
//! range.

use std::sync::Arc;

use parext4::{Device, Error, FileSize, Volume};

use testkit::ops::{Content, FileOp, Way};
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

use super::random::Tested;

/// Allocates all blocks, including the reserve for metadata, which directories may use.
fn fill_up(volume: &Volume) {
    let ballast = volume.create_direct("/ballast").unwrap();
    for blocks in [256_u64, 16, 1] {
        while ballast.allocate(ballast.size()..ballast.size() + (blocks << 10), FileSize::Extend).is_ok() {}
    }
    // Each write into the middle of an unwritten extent costs the tree an entry, until the tree can
    // get no more blocks.
    let spare = || volume.space().free_blocks;
    let (mut at, size) = (0, ballast.size());
    while spare() > 0 && at < size {
        if ballast.write_all_at(&[9; 512], at).is_err() {
            break;
        }
        at += 2 << 10;
    }
}

/// Makes a file of many extents on a volume without a free block.
fn full_volume() -> (Arc<parext4::MemDevice>, Volume, Tested) {
    let device = Arc::new(Shape::new(4, 1024, true).make());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    let mut tested = Tested::create(&volume, 1024);
    tested.chessboard(1024, 300);
    let long = FileOp::Write { way: Way::Direct, offset: 300 << 10, len: 200 << 10 };
    tested.apply(long, Content::Byte(5)).unwrap();
    volume.sync().unwrap();
    fill_up(&volume);
    volume.sync().unwrap();
    (device, volume, tested)
}

#[test]
fn nothing_is_lost_if_the_tree_gets_no_block() {
    let (device, volume, mut tested) = full_volume();
    let mut rng = Rng::new(1, 1);
    let mut failed = 0;
    for nth in 0..120 {
        // Holes of one block split the long extent until its leaf is full.
        let (at, block) = ((300 + rng.below(190)) << 10, 1 << 10);
        let change = match nth % 3 {
            0 => FileOp::PunchHole { offset: at, len: block },
            1 => FileOp::ZeroRange { offset: at, len: block, keep_size: true },
            _ => FileOp::InsertRange { offset: at, len: block },
        };
        match tested.apply(change, Content::Byte(1)) {
            Ok(()) => {}
            Err(Error::NoSpace) => failed += 1,
            Err(error) => panic!("{change:?}: {error}"),
        }
        tested.check().unwrap_or_else(|e| panic!("change {nth}, {change:?}: {e}"));
    }
    eprintln!("{failed} of 120 changes found no space");
    drop(tested);
    volume.close().unwrap();
    assert_clean(&device, "a full volume");
}

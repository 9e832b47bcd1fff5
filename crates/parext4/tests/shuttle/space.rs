//! Windows of free blocks, stolen while their owner allocates.

use parext4::fault::Fault;
use parext4::{DirectFile, FileSize, MemDevice, Volume};

use super::support::*;
use testkit::volume::DirectFiles as _;

/// Makes a volume in which only a window has 16 contiguous blocks, and the window's file. All other
/// free runs have 12 blocks.
fn with_one_long_run(image: &MemDevice) -> (Volume, DirectFile) {
    const BLOCK: u64 = super::support::BLOCK as u64;
    let volume = volume(image);
    let owner = volume.create_direct("/owner").unwrap();
    owner.append(&[1; BLOCK as usize]).unwrap();
    let (pieces, ballast) =
        (volume.create_direct("/pieces").unwrap(), volume.create_direct("/ballast").unwrap());
    for nth in 0..10 {
        pieces.allocate(nth * 12 * BLOCK..nth * 12 * BLOCK + 12 * BLOCK, FileSize::Extend).unwrap();
        ballast.allocate(nth * 4 * BLOCK..nth * 4 * BLOCK + 4 * BLOCK, FileSize::Extend).unwrap();
    }
    // Allocates the remaining run except the window of 31 blocks and 8 blocks.
    let rest = volume.space().free_blocks - 31 - 8;
    drop(pieces);
    volume.remove_file("/pieces").unwrap();
    volume.sync().unwrap();
    ballast.allocate(ballast.size()..ballast.size() + rest * BLOCK, FileSize::Extend).unwrap();
    (volume, owner)
}

#[test]
fn a_stolen_window_allocates_nothing() {
    check(100, &[Fault::WindowOutlivesReturn], |image| {
        let (volume, owner) = with_one_long_run(image);
        let other = volume.create_direct("/other").unwrap();
        let needs_it = other.clone();
        race(
            &owner,
            |f| assert_eq!(f.append(&[1; 32 * SECTOR]).unwrap(), 1024),
            move |_| write(&needs_it, 2, 32, 0),
        );
        assert!(read(&owner, 34, 0).iter().all(|&byte| byte == 1), "the owner's data is overwritten");
        assert!(read(&other, 32, 0).iter().all(|&byte| byte == 2), "the other's data is overwritten");
    });
}

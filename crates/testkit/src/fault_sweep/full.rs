//! Volumes with a certain number of free blocks, for workloads that find no space.
//!
//! The last blocks of a volume are kept for its metadata. A file of unwritten blocks uses up one of them when every other block is
//! written: the file then needs a block for its tree of extents.

use parext4::{DirectFile, Error, Volume};

use super::devices::Devices;
use super::snapshot::OWN;
use crate::volume::DirectFiles as _;

/// Unwritten blocks of a file that uses up one block.
const BLOCKS: u64 = 12;
/// Number of such files besides one for each block that is kept for metadata.
const SPARE: u64 = 4;

/// Returns the volume with all blocks for data in use. `None` if its files have no extents.
pub fn filled(base: &Devices) -> Option<Devices> {
    let full = base.fork();
    let volume = open(&full);
    let block = u64::from(volume.space().block_size);
    let kept = volume.space().blocks / 50;
    for number in 0..kept + SPARE {
        let file = volume.create_direct(absorber(number)).expect("a file");
        match file.allocate(0, BLOCKS * block, false) {
            Err(Error::Unsupported(_)) => return None,
            allocated => allocated.expect("unwritten blocks"),
        }
    }
    let filler = volume.create_direct(filler()).expect("a file");
    let (mut at, mut len) = (0, 1 << 20);
    while len >= block {
        match filler.allocate(at, len, false) {
            Ok(()) => at += len,
            Err(Error::NoSpace) => len /= 2,
            Err(error) => panic!("filling the volume: {error}"),
        }
    }
    drop(filler);
    volume.close().expect("the volume closes");
    Some(full)
}

/// Leaves `free` free blocks on a volume that [`filled`] has made. Returns false if it cannot have as few or as many.
pub fn leave(full: &Devices, free: u64) -> bool {
    let volume = open(full);
    let block = u64::from(volume.space().block_size);
    let now = || volume.space().free_blocks;
    for number in 0.. {
        if now() <= free {
            break;
        }
        let Ok(file) = volume.direct_file(absorber(number)) else { return false };
        use_one_up(&volume, &file, block, free);
    }
    if now() < free {
        let filler = volume.direct_file(filler()).expect("the file");
        let Some(size) = filler.size().checked_sub((free - now()) * block) else { return false };
        filler.set_len(size).expect("a truncation");
    }
    volume.close().expect("the volume closes");
    true
}

/// Removes the file that fills the volume.
///
/// # Errors
/// The errors of the removal.
pub fn empty(volume: &Volume) -> Result<(), Error> {
    volume.remove_file(filler())?;
    volume.sync()
}

fn use_one_up(volume: &Volume, file: &DirectFile, block: u64, free: u64) {
    let data = vec![2; usize::try_from(block).expect("a block fits in memory")];
    for odd in (1..BLOCKS).step_by(2) {
        if volume.space().free_blocks <= free {
            break;
        }
        file.write_at(&data, odd * block).expect("a write of unwritten blocks");
    }
}

fn open(devices: &Devices) -> Volume {
    devices.open().expect("the volume opens")
}

fn absorber(number: u64) -> String {
    format!("{OWN}-{number}")
}

fn filler() -> String {
    format!("{OWN}-filler")
}

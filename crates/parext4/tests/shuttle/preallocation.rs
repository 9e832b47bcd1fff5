//! Preallocated blocks of files that grow, against threads that write, allocate, truncate or close
//! the file.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::models::map_ahead;
use parext4::{DirectFile, FileSize, MemDevice, SplitAt, Volume};

use super::support::*;
use testkit::volume::DirectFiles as _;

/// Blocks of the file before the race. Preallocation begins past them.
const BLOCKS: u64 = 17;

/// Makes a volume with a closed file that gets preallocated blocks as soon as it grows.
fn with_growing_file(device: &Arc<MemDevice>) -> Volume {
    let volume = open_quiet(Arc::clone(device), SplitAt::default());
    let file = volume.create_direct("/f").unwrap();
    for block in 0..BLOCKS {
        assert_eq!(file.append(&[1; BLOCK]).unwrap(), block * BLOCK as u64);
    }
    volume
}

/// Opens the file in a new thread, runs an operation on it, and closes it.
fn with_file(
    volume: &Volume,
    work: impl Fn(&DirectFile) + Send + 'static,
) -> shuttle::thread::JoinHandle<()> {
    let volume = volume.clone();
    shuttle::thread::spawn(move || work(&volume.direct_file("/f").unwrap()))
}

/// Returns how many blocks of the file hold ones after the volume was closed, and its 512-byte
/// units in use.
fn after_close(volume: Volume, device: &Arc<MemDevice>) -> (usize, u64) {
    volume.close().unwrap();
    let volume = open_quiet(Arc::clone(device), SplitAt::default());
    let file = volume.direct_file("/f").unwrap();
    let blocks = blocks_of(&file, 64);
    (blocks.iter().filter(|&&byte| byte == 1).count(), volume.metadata("/f").unwrap().sectors)
}

#[test]
fn preallocated_blocks_are_not_freed_under_writers() {
    check(300, &[Fault::PreallocationFreedInUse], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let append = |f: &DirectFile| assert!(f.append(&[1; BLOCK]).is_ok());
        let threads = [with_file(&volume, append), with_file(&volume, append), with_file(&volume, append)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (ones, sectors) = after_close(volume, &device);
        assert_eq!(ones, 20, "an append is lost");
        assert_eq!(sectors, 2 * 20, "preallocated blocks stay allocated after the last close");
    });
}

#[test]
fn explicitly_allocated_blocks_stay() {
    check(300, &[Fault::AllocatedAsPreallocated], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let append = |f: &DirectFile| assert!(f.append(&[1; BLOCK]).is_ok());
        let allocate =
            |f: &DirectFile| f.allocate(18 * BLOCK as u64..22 * BLOCK as u64, FileSize::Keep).unwrap();
        let threads = [with_file(&volume, append), with_file(&volume, allocate)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (ones, sectors) = after_close(volume, &device);
        assert_eq!(ones, 18);
        assert!(sectors >= 2 * 22, "{sectors}: blocks that fallocate mapped past the end were freed");
    });
}

#[test]
fn a_truncation_frees_preallocated_blocks() {
    check(300, &[], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let append = |f: &DirectFile| assert!(f.append(&[1; BLOCK]).is_ok());
        let cut = |f: &DirectFile| f.set_len(4 * BLOCK as u64).unwrap();
        let threads = [with_file(&volume, append), with_file(&volume, cut), with_file(&volume, append)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (ones, sectors) = after_close(volume, &device);
        assert!((4..=6).contains(&ones), "{ones} blocks");
        assert_eq!(sectors, 2 * ones as u64, "preallocated blocks stay allocated after the last close");
    });
}

#[test]
fn preallocation_races_with_a_write_into_a_hole() {
    check_stopping(300, &[Fault::FillUnchecked], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let ahead = |f: &DirectFile| map_ahead(f, 18, 8).unwrap();
        // The file then ends past its preallocated blocks.
        let write = |f: &DirectFile| {
            f.set_len(64 * BLOCK as u64).unwrap();
            f.write_all_at(&[1; 3 * BLOCK], 20 * BLOCK as u64).unwrap();
        };
        let threads = [with_file(&volume, ahead), with_file(&volume, write)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let extents = volume.direct_file("/f").unwrap().fiemap(0..64 * BLOCK as u64).unwrap();
        let mapped: u64 = extents.iter().map(|extent| extent.len).sum();
        assert!((BLOCKS + 3..=BLOCKS + 8).contains(&(mapped / BLOCK as u64)), "{mapped} bytes are mapped");
        // A leaf of the extent tree may use one block.
        let used = 512 * volume.metadata("/f").unwrap().sectors;
        assert!(used - mapped <= BLOCK as u64, "blocks were mapped twice");
        let (ones, _) = after_close(volume, &device);
        assert_eq!(ones as u64, BLOCKS + 3, "a write is lost");
    });
}

/// An append holds the range of its own block, and not of the preallocated blocks after it.
#[test]
fn preallocation_avoids_shifted_ranges() {
    check_stopping(300, &[Fault::PreallocateBelowSize], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let file = volume.direct_file("/f").unwrap();
        let append = |f: &DirectFile| assert!(f.append(&[2; BLOCK]).is_ok());
        let behind = spawn(&file, |f| assert!(f.append(&[3; 6 * BLOCK]).is_ok()));
        // Fails if the file ends before the range.
        race(&file, append, |f| drop(f.collapse_range(20 * BLOCK as u64..21 * BLOCK as u64)));
        behind.join().unwrap();
        volume.sync().unwrap();
        // The check of the extent tree fails if a block is mapped twice.
        let (_volume, after) = after_crash(&device, "/f");
        assert_eq!(read(&after, 64, 0), read(&file, 64, 0));
    });
}

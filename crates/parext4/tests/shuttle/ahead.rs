//! Blocks mapped ahead of files that grow, against those who use, allocate, cut or let go of the file.

use std::sync::Arc;

use parext4::fault::Fault;
use parext4::models::map_ahead;
use parext4::{DirectFile, MemDevice, SplitAt, Volume};

use super::support::*;

/// Blocks of the file before the race: from here on some are mapped ahead of it.
const BLOCKS: u64 = 17;

/// A volume with a file that nobody has open and that has blocks ahead of it as soon as it grows.
fn with_growing_file(device: &Arc<MemDevice>) -> Volume {
    let volume = open_quiet(Arc::clone(device), SplitAt::default());
    let file = volume.create("/f", 0o644).unwrap();
    for block in 0..BLOCKS {
        assert_eq!(file.append(&[1; BLOCK]).unwrap(), block * BLOCK as u64);
    }
    volume
}

/// Opens the file, does something with it and lets go of it, in a thread.
fn with_file(
    volume: &Volume,
    work: impl Fn(&DirectFile) + Send + 'static,
) -> shuttle::thread::JoinHandle<()> {
    let volume = volume.clone();
    shuttle::thread::spawn(move || work(&volume.open_file("/f").unwrap()))
}

/// The file after the volume was closed: how many blocks hold ones, and 512-byte units in use.
fn after_close(volume: Volume, device: &Arc<MemDevice>) -> (usize, u64) {
    volume.close().unwrap();
    let volume = open_quiet(Arc::clone(device), SplitAt::default());
    let file = volume.open_file("/f").unwrap();
    let blocks = blocks_of(&file, 64);
    (blocks.iter().filter(|&&byte| byte == 1).count(), volume.metadata("/f").unwrap().sectors)
}

#[test]
fn blocks_ahead_are_not_taken_from_those_who_write_them() {
    check(300, &[Fault::AheadUnheld], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let append = |f: &DirectFile| assert!(f.append(&[1; BLOCK]).is_ok());
        let threads = [with_file(&volume, append), with_file(&volume, append), with_file(&volume, append)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (ones, sectors) = after_close(volume, &device);
        assert_eq!(ones, 20, "an append is lost");
        assert_eq!(sectors, 2 * 20, "what was mapped ahead stays behind");
    });
}

#[test]
fn blocks_that_were_asked_for_stay() {
    check(300, &[Fault::KeptAsAhead], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let append = |f: &DirectFile| assert!(f.append(&[1; BLOCK]).is_ok());
        let allocate = |f: &DirectFile| f.allocate(18 * BLOCK as u64, 4 * BLOCK as u64, true).unwrap();
        let threads = [with_file(&volume, append), with_file(&volume, allocate)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (ones, sectors) = after_close(volume, &device);
        assert_eq!(ones, 18);
        assert!(sectors >= 2 * 22, "{sectors}: what was allocated behind the end is gone");
    });
}

#[test]
fn a_truncation_takes_blocks_ahead_with_it() {
    check(300, &[], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let append = |f: &DirectFile| assert!(f.append(&[1; BLOCK]).is_ok());
        let cut = |f: &DirectFile| f.set_len(4 * BLOCK as u64).unwrap();
        let threads = [with_file(&volume, append), with_file(&volume, cut), with_file(&volume, append)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (ones, sectors) = after_close(volume, &device);
        assert!((4..=6).contains(&ones), "{ones} blocks");
        assert_eq!(sectors, 2 * ones as u64, "what was mapped ahead stays behind");
    });
}

#[test]
fn blocks_ahead_meet_a_write_into_a_hole() {
    check_stopping(300, &[Fault::FillBlindly], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let ahead = |f: &DirectFile| map_ahead(f, 18, 8).unwrap();
        // The file ends behind what is mapped ahead then.
        let write = |f: &DirectFile| {
            f.set_len(64 * BLOCK as u64).unwrap();
            f.write_at(&[1; 3 * BLOCK], 20 * BLOCK as u64).unwrap();
        };
        let threads = [with_file(&volume, ahead), with_file(&volume, write)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let extents = volume.open_file("/f").unwrap().fiemap(0..64 * BLOCK as u64).unwrap();
        let mapped: u64 = extents.iter().map(|extent| extent.len).sum();
        assert!((BLOCKS + 3..=BLOCKS + 8).contains(&(mapped / BLOCK as u64)), "{mapped} bytes are mapped");
        // The leaf of the map may be a block.
        let used = 512 * volume.metadata("/f").unwrap().sectors;
        assert!(used - mapped <= BLOCK as u64, "blocks were mapped twice");
        let (ones, _) = after_close(volume, &device);
        assert_eq!(ones as u64, BLOCKS + 3, "a write is lost");
    });
}

/// An append holds its own block, and not what is mapped ahead of it.
#[test]
fn blocks_are_not_mapped_ahead_into_what_moves() {
    check_stopping(300, &[Fault::AheadWithin], |image| {
        let device = Arc::new(image.fork());
        let volume = with_growing_file(&device);
        let file = volume.open_file("/f").unwrap();
        let append = |f: &DirectFile| assert!(f.append(&[2; BLOCK]).is_ok());
        let behind = spawn(&file, |f| assert!(f.append(&[3; 6 * BLOCK]).is_ok()));
        // Refused, if the file ends before.
        race(&file, append, |f| drop(f.collapse_range(20 * BLOCK as u64, BLOCK as u64)));
        behind.join().unwrap();
        volume.sync().unwrap();
        // Blocks that are mapped twice are an error.
        let (_volume, after) = after_crash(&device, "/f");
        assert_eq!(read(&after, 64, 0), read(&file, 64, 0));
    });
}

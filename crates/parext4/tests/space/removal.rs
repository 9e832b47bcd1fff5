//! A full volume whose largest file is removed: a write at once has the space, round after round.
//!
//! Runs for `PAREXT4_STRESS_SECONDS`, and at least [`ROUNDS`] rounds.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use parext4::server::ServerInode;
use parext4::{Error, File, InodeRef, MemDevice, MkfsOptions, Result, Volume, VolumeOptions, mkfs};
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{DirectFiles as _, assert_clean};

const ROUNDS: u64 = 300;
const BLOCK: usize = 4096;
/// Bytes of the file that is written after the removal: more than a full volume has left.
const SMALL: usize = 32 * BLOCK;
/// The longest time, in microseconds, for which another thread keeps the removed file.
const LONGEST_USE: u64 = 400;

fn volume() -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(8 << 20));
    let format = MkfsOptions::new().block_size(4096).reserved_percent(0.0);
    mkfs(&*device, &format.device_is_zero(true)).unwrap();
    let volume = Volume::open_device(Arc::clone(&device) as _, &VolumeOptions::new()).unwrap();
    (device, volume)
}

/// Writes a file until the volume is full.
fn fill(volume: &Volume, is_buffered: bool) -> File {
    let file = volume.create_direct("/fill").unwrap().buffered().unwrap();
    let direct = volume.direct_file("/fill").unwrap();
    let piece = vec![1; 16 * BLOCK];
    let full = (0_u64..).find_map(|nth| {
        let offset = nth * piece.len() as u64;
        let written =
            if is_buffered { file.write_all_at(&piece, offset) } else { direct.write_all_at(&piece, offset) };
        written.err()
    });
    assert!(matches!(full, Some(Error::NoSpace)), "{full:?}");
    file
}

fn write_small(volume: &Volume, is_buffered: bool) -> Result<()> {
    let file = volume.create_direct("/small")?;
    if is_buffered {
        file.buffered()?.write_all_at(&[2; SMALL], 0)
    } else {
        file.write_all_at(&[2; SMALL], 0)
    }
}

/// Drops the nodes that it receives, as a mount does when the kernel forgets an inode.
fn drop_late(nodes: &Receiver<InodeRef>, seed: u64) {
    let mut rng = Rng::new(seed, 0);
    for node in nodes {
        std::thread::sleep(Duration::from_micros(rng.below(LONGEST_USE)));
        drop(node);
    }
}

#[test]
fn a_write_at_once_after_a_removal_finds_its_space() {
    let (device, volume) = volume();
    let seed = settings::seed("removal");
    let until = Instant::now() + settings::seconds(0.0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || drop_late(&receiver, seed));
        let mut rounds = 0;
        while rounds < ROUNDS || Instant::now() < until {
            let file = fill(&volume, rounds % 2 == 0);
            sender.send(file.inode_ref().clone().departing()).unwrap();
            drop(file);
            volume.remove_file("/fill").unwrap();
            if let Err(error) = write_small(&volume, rounds % 4 < 2) {
                panic!("round {rounds}: {error}, {:?}", volume.space());
            }
            volume.remove_file("/small").unwrap();
            rounds += 1;
        }
        drop(sender);
        println!("{rounds} rounds");
    });
    volume.close().unwrap();
    assert_clean(&device, "filled, removed and written");
}

//! Volumes with no block left, or with so many.

use std::sync::Arc;

use parext4::{Error, File, MemDevice, OpenOptions, Volume};

use super::memory::{Shape, assert_clean, untimed};

pub const BLOCK: u64 = 1024;
/// A file of so many blocks allocated ahead takes a block for its tree when every other block is written.
const EATER: u64 = 12;

/// Blocks behind the end of an empty file, /behind.
pub const BEHIND: u64 = 400;

/// How large everything is.
#[derive(Clone, Copy)]
pub struct Size {
    pub shape: Shape,
    /// Blocks of the file that is written.
    pub blocks: u64,
    /// Files that take a block each.
    pub eaters: u32,
}

pub const SMALL: Size = Size { shape: Shape::new(4, 1024, false), blocks: 700, eaters: 120 };
pub const LARGE: Size = Size { shape: Shape::new(8, 1024, false), blocks: 4000, eaters: 200 };

/// A full volume.
pub struct Full {
    pub device: Arc<MemDevice>,
    pub volume: Volume,
    pub file: File,
    /// What the file holds.
    pub model: Vec<u8>,
}

impl Full {
    /// Exactly `free` blocks are left, and the file has `cuts` written blocks among the others.
    pub fn new(size: Size, options: &OpenOptions, free: u64, cuts: u64) -> Self {
        let Size { shape, blocks, eaters } = size;
        let device = Arc::new(shape.make_poisoned());
        let volume = Volume::open(Arc::clone(&device) as Arc<_>, options).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        file.allocate(0, blocks * BLOCK, false).unwrap();
        let mut model = vec![0; usize::try_from(blocks * BLOCK).unwrap()];
        for cut in 0..cuts {
            let at = usize::try_from((3 + 4 * cut) * BLOCK).unwrap();
            file.write_at(&[1; 1024], at as u64).unwrap();
            model[at..at + 1024].fill(1);
        }
        let behind = volume.create("/behind", 0o644).unwrap();
        behind.allocate(0, BEHIND * BLOCK, true).unwrap();
        let eaters: Vec<File> =
            (0..eaters).map(|number| volume.create(format!("/eater-{number}"), 0o644).unwrap()).collect();
        eaters.iter().for_each(|eater| eater.allocate(0, EATER * BLOCK, false).unwrap());
        fill(&volume);
        volume.sync().unwrap();
        for eater in &eaters {
            for block in (1..EATER).step_by(2) {
                if volume.space().free_blocks <= free {
                    break;
                }
                eater.write_at(&[2; 1024], block * BLOCK).unwrap();
            }
        }
        assert_eq!(volume.space().free_blocks, free, "blocks that could not be used up");
        Self { device, volume, file, model }
    }

    /// Checks what the file holds.
    pub fn check(&self, what: &str) {
        let mut bytes = vec![0; self.model.len()];
        assert_eq!(self.file.read_at(&mut bytes, 0).unwrap(), bytes.len(), "{what}");
        let differs = bytes.iter().zip(&self.model).position(|(seen, want)| seen != want);
        if let Some(at) = differs {
            panic!("{what}: byte {at} (block {}) is {:#x}, not {:#x}", at / 1024, bytes[at], self.model[at]);
        }
    }

    /// Closes the volume, asks e2fsck, and looks again.
    pub fn close(self, what: &str) {
        let Self { device, volume, file, model } = self;
        drop(file);
        volume.close().unwrap();
        assert_clean(&device, what);
        let volume = Volume::open(Arc::clone(&device) as Arc<_>, &untimed()).unwrap();
        let file = volume.open_file("/file").unwrap();
        Self { device, volume, file, model }.check(what);
    }
}

/// Takes all blocks that data may have.
fn fill(volume: &Volume) {
    let filler = volume.create("/filler", 0o644).unwrap();
    let (mut at, mut len) = (0, 1 << 20);
    while len >= BLOCK {
        match filler.allocate(at, len, false) {
            Ok(()) => at += len,
            Err(Error::NoSpace) => len /= 2,
            Err(error) => panic!("{error}"),
        }
    }
}

//! Volumes with an exact number of free blocks, including none.

use std::sync::Arc;

use parext4::{DirectFile, Error, FileSize, MemDevice, Volume, VolumeOptions};

use crate::volume::{DirectFiles as _, Shape, assert_clean, untimed};

/// Bytes of a block.
pub const BLOCK: u64 = 1024;
/// Preallocated blocks in a file that uses up free blocks. The file needs one more block, for its
/// extent tree, once every other block is written.
const ABSORBER_BLOCKS: u64 = 12;

/// Blocks allocated past the end of the empty file `/behind`.
pub const BEHIND: u64 = 400;

/// The sizes of a volume and its files.
#[derive(Clone, Copy)]
pub struct Size {
    /// The volume.
    pub shape: Shape,
    /// Blocks of the file under test.
    pub blocks: u64,
    /// Files that use up one free block each.
    pub absorbers: u32,
}

/// A small volume.
pub const SMALL: Size = Size { shape: Shape::new(4, 1024, false), blocks: 700, absorbers: 120 };
/// A volume on which the file has several leaves of extents.
pub const LARGE: Size = Size { shape: Shape::new(8, 1024, false), blocks: 4000, absorbers: 200 };

/// A full volume with a file under test.
pub struct FullVolume {
    /// The device.
    pub device: Arc<MemDevice>,
    /// The volume.
    pub volume: Volume,
    /// The file under test.
    pub file: DirectFile,
    /// The expected content of the file.
    pub model: Vec<u8>,
}

impl FullVolume {
    /// Makes a volume with exactly `free` free blocks. The file has `cuts` written blocks among its
    /// unwritten ones.
    pub fn new(size: Size, options: &VolumeOptions, free: u64, cuts: u64) -> Self {
        let Size { shape, blocks, absorbers } = size;
        let device = Arc::new(shape.make_poisoned());
        let volume = Volume::open_device(Arc::clone(&device) as Arc<_>, options).unwrap();
        let file = volume.create_direct("/file").unwrap();
        file.allocate(0..blocks * BLOCK, FileSize::Extend).unwrap();
        let mut model = vec![0; usize::try_from(blocks * BLOCK).unwrap()];
        for cut in 0..cuts {
            let at = usize::try_from((3 + 4 * cut) * BLOCK).unwrap();
            file.write_all_at(&[1; 1024], at as u64).unwrap();
            model[at..at + 1024].fill(1);
        }
        let behind = volume.create_direct("/behind").unwrap();
        behind.allocate(0..BEHIND * BLOCK, FileSize::Keep).unwrap();
        let absorbers: Vec<DirectFile> = (0..absorbers)
            .map(|number| volume.create_direct(format!("/absorber-{number}")).unwrap())
            .collect();
        absorbers
            .iter()
            .for_each(|absorber| absorber.allocate(0..ABSORBER_BLOCKS * BLOCK, FileSize::Extend).unwrap());
        fill(&volume);
        volume.sync().unwrap();
        for absorber in &absorbers {
            for block in (1..ABSORBER_BLOCKS).step_by(2) {
                if volume.space().free_blocks <= free {
                    break;
                }
                absorber.write_all_at(&[2; 1024], block * BLOCK).unwrap();
            }
        }
        assert_eq!(volume.space().free_blocks, free, "free blocks that could not be used up");
        Self { device, volume, file, model }
    }

    /// Asserts that the file has the contents of the model.
    pub fn check(&self, what: &str) {
        let mut bytes = vec![0; self.model.len()];
        assert_eq!(self.file.read_at(&mut bytes, 0).unwrap(), bytes.len(), "{what}");
        let differs = bytes.iter().zip(&self.model).position(|(seen, want)| seen != want);
        if let Some(at) = differs {
            panic!("{what}: byte {at} (block {}) is {:#x}, not {:#x}", at / 1024, bytes[at], self.model[at]);
        }
    }

    /// Closes the volume, checks it with e2fsck, and checks the file once more.
    pub fn close(self, what: &str) {
        let Self { device, volume, file, model } = self;
        drop(file);
        volume.close().unwrap();
        assert_clean(&device, what);
        let volume = Volume::open_device(Arc::clone(&device) as Arc<_>, &untimed()).unwrap();
        let file = volume.direct_file("/file").unwrap();
        Self { device, volume, file, model }.check(what);
    }
}

/// Allocates all blocks that data may use.
fn fill(volume: &Volume) {
    let filler = volume.create_direct("/filler").unwrap();
    let (mut at, mut len) = (0, 1 << 20);
    while len >= BLOCK {
        match filler.allocate(at..at + len, FileSize::Extend) {
            Ok(()) => at += len,
            Err(Error::NoSpace) => len /= 2,
            Err(error) => panic!("{error}"),
        }
    }
}

//! Damage to the structures of a sound volume, as a hostile image has it: fields get other values, and checksums are made right again
//! so that the checks of the structures themselves are reached (I9).
//!
//! | module | contents |
//! |---|---|
//! | `structure` | [`Structure`]: a place in the image, its fields, and how its checksum is made |
//! | `fields` | where the fields of each structure are |
//! | `seal` | checksums |
//! | `finder` | collects structures |
//! | `anatomy`, `journal` | [`Anatomy`]: finds the structures of a volume and of its log |
//! | `seeds` | [`seeds`]: sound volumes of a kind |
//! | `exercise` | [`exercise`]: reads, checks, recovers and changes a damaged volume |

mod anatomy;
mod exercise;
mod fields;
mod finder;
mod journal;
mod seal;
mod seeds;
mod structure;

pub use anatomy::Anatomy;
pub use exercise::{BUDGET, exercise};
pub use fields::SUPERBLOCK;
pub use seeds::seeds;
pub use structure::{Class, Structure};

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

use parext4::{Device, MemDevice};

use crate::sector::SECTOR;

/// The most fields that are changed at once.
const MOST: u64 = 4;

impl Anatomy {
    /// Changes one to four fields of the volume on `device`, and makes the checksums right. `below` returns a number below its argument,
    /// and so makes all choices. Returns a description of the changes.
    ///
    /// # Panics
    /// If `device` is not a copy of the volume.
    pub fn damage(&self, device: &MemDevice, below: &mut dyn FnMut(u64) -> u64) -> Vec<String> {
        (0..=below(MOST)).map(|_| self.damage_one(device, below)).collect()
    }

    fn damage_one(&self, device: &MemDevice, below: &mut dyn FnMut(u64) -> u64) -> String {
        let structure = self.choose(below);
        let mut bytes = read(device, structure);
        let (at, width) = structure.fields[index(below(structure.fields.len() as u64))];
        let old = structure.get(&bytes, at, width);
        let new = match below(8) {
            0 => old ^ (1 << below(8 * width as u64)),
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            3 => below(1 << 24),
            4 => u64::MAX,
            5 => 0,
            6 => INTERESTING[index(below(INTERESTING.len() as u64))],
            _ => self.field_of_another(device, below),
        };
        structure.set(&mut bytes, at, width, new);
        structure.seal(&self.superblock, &mut bytes);
        write(device, structure, &bytes);
        format!("{:?} at {:#x}+{at:#x}, {width} bytes: {old:#x} to {new:#x}", structure.class, structure.at)
    }

    /// Chooses a class of structures, and one of that class.
    fn choose(&self, below: &mut dyn FnMut(u64) -> u64) -> &Structure {
        let class = &self.structures[index(below(self.structures.len() as u64))];
        &class[index(below(class.len() as u64))]
    }

    /// Returns a value that has a meaning elsewhere, such as the number of a block.
    fn field_of_another(&self, device: &MemDevice, below: &mut dyn FnMut(u64) -> u64) -> u64 {
        let other = self.choose(below);
        let bytes = read(device, other);
        let (at, width) = other.fields[index(below(other.fields.len() as u64))];
        other.get(&bytes, at, width)
    }
}

/// Values at which fields have limits.
const INTERESTING: &[u64] = &[
    2,
    4,
    7,
    8,
    10,
    11,
    12,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x3ff,
    0x400,
    0xfff,
    0x1000,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
];

/// Reads the whole sectors around a structure, and returns their offset, their bytes, and the place of the structure in them.
fn sectors(device: &MemDevice, structure: &Structure) -> (u64, Vec<u8>, Range<usize>) {
    let start = structure.at - structure.at % SECTOR as u64;
    let within = index(structure.at - start);
    let mut bytes = vec![0; (within + structure.len).next_multiple_of(SECTOR)];
    device.read_at(start, &mut [IoSliceMut::new(&mut bytes)]).expect("a place in the volume");
    (start, bytes, within..within + structure.len)
}

fn read(device: &MemDevice, structure: &Structure) -> Vec<u8> {
    let (_, bytes, place) = sectors(device, structure);
    bytes[place].to_vec()
}

fn write(device: &MemDevice, structure: &Structure, new: &[u8]) {
    let (start, mut bytes, place) = sectors(device, structure);
    bytes[place].copy_from_slice(new);
    device.write_at(start, &[IoSlice::new(&bytes)]).expect("a place in the volume");
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("an index")
}

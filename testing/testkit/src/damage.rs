//! Damage to the structures of a sound volume, as a hostile image has it: fields get other values,
//! and checksums are made right again so that the checks of the structures themselves are reached
//! (I9). Logs are also composed from the start.
//!
//! | module | contents |
//! |---|---|
//! | `structure` | [`Structure`]: a place in the image, its fields, and how its checksum is made |
//! | `fields` | where the fields of each structure are |
//! | `seal`, `holder` | checksums in a structure, and of it in another one |
//! | `bytes` | bytes at any place of a device |
//! | `finder` | collects structures |
//! | `anatomy`, `journal` | [`Anatomy`]: finds the structures of a volume and of its log |
//! | `log`, `fast_commits` | compose a log of several transactions, and fast commits |
//! | `seeds` | [`seeds`]: sound volumes of a kind |
//! | `small_stack` | [`on_small_stack`]: a stack that deep recursion overflows |
//! | `exercise` | [`exercise`]: reads, checks, recovers and changes a damaged volume |
//! | `replay` | [`replay`], [`replay_as_e2fsck`]: replays a log in all ways |

mod anatomy;
mod bytes;
mod exercise;
mod fast_commits;
mod fields;
mod finder;
mod holder;
mod journal;
mod log;
mod replay;
mod seal;
mod seeds;
mod small_stack;
mod structure;

pub use anatomy::Anatomy;
pub use exercise::{BUDGET, exercise};
pub use fields::SUPERBLOCK;
pub use log::Composed;
pub use replay::{replay, replay_as_e2fsck};
pub use seeds::seeds;
pub use small_stack::on_small_stack;
pub use structure::{Class, Structure};

use parext4::MemDevice;

/// The most fields that are changed at once.
const MOST: u64 = 4;

impl Anatomy {
    /// Changes one to four fields of the volume on `device`, and makes the checksums right. `below`
    /// returns a number below its argument, and so makes all choices. Returns a description of the
    /// changes.
    ///
    /// # Panics
    /// If `device` is not a copy of the volume.
    pub fn damage(&self, device: &MemDevice, below: &mut dyn FnMut(u64) -> u64) -> Vec<String> {
        (0..=below(MOST)).map(|_| self.damage_one(device, below)).collect()
    }

    fn damage_one(&self, device: &MemDevice, below: &mut dyn FnMut(u64) -> u64) -> String {
        let structure = self.choose(below);
        let mut bytes = bytes::read(device, structure.at, structure.len);
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
        structure.store(&self.superblock, device, &mut bytes);
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
        let bytes = bytes::read(device, other.at, other.len);
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

fn index(number: u64) -> usize {
    usize::try_from(number).expect("an index")
}

//! Composes fast commits after a log: valid tags with any numbers in them.

use parext4::MemDevice;
use parext4_format::jbd2::{JournalSuperblock, SUPERBLOCK_SIZE};

use super::structure::Class;
use super::{Anatomy, bytes};
use crate::choices::Choices;
use crate::fast_commit_tags::{ADD_RANGE, CREATE, DEL_RANGE, INODE, LINK, Tags, UNLINK};

/// The most fast commits, and changes in one.
const MOST_COMMITS: u64 = 4;
const MOST_CHANGES: u64 = 10;

/// The tags with names.
const NAMES: [u16; 3] = [CREATE, LINK, UNLINK];
/// Bytes of a tag besides its value, and of the tail that each block has room for.
const ROOM: usize = 4 + 12;

impl Anatomy {
    /// Writes fast commits of transaction `tid` to the journal of the volume on `device`. Returns
    /// false if it has no area for them.
    ///
    /// # Panics
    /// If `device` is not a copy of the volume.
    pub fn compose_fast_commits<C: Choices>(&self, device: &MemDevice, tid: u32, choices: &mut C) -> bool {
        let block_size = self.superblock.block_size() as usize;
        let Some(journal) = self.journal.first() else { return false };
        let first = bytes::read(device, journal * block_size as u64, SUPERBLOCK_SIZE);
        let area = JournalSuperblock::parse(&first).map(|superblock| superblock.fast_commit_blocks());
        let area = area.ok().and_then(|area| self.journal.get(area.start as usize..area.end as usize));
        let Some(area) = area.filter(|area| !area.is_empty()) else { return false };
        let mut writer = Writer { anatomy: self, device, tags: Tags::new(block_size, tid) };
        for _ in 0..=choices.below(MOST_COMMITS) {
            for _ in 0..choices.below(MOST_CHANGES) {
                writer.change(choices);
            }
            writer.tags.tail();
        }
        for (block, content) in area.iter().zip(writer.tags.bytes().chunks(block_size)) {
            bytes::write(device, block * block_size as u64, content);
        }
        true
    }
}

/// An area that is being written.
struct Writer<'a> {
    anatomy: &'a Anatomy,
    device: &'a MemDevice,
    tags: Tags,
}

impl Writer<'_> {
    fn add(&mut self, kind: u16, value: &[u8]) {
        self.tags.make_room(ROOM + value.len());
        self.tags.add(kind, value);
    }

    fn numbers(&mut self, kind: u16, numbers: &[u32]) {
        self.tags.make_room(ROOM + 4 * numbers.len());
        self.tags.numbers(kind, numbers);
    }

    fn change<C: Choices>(&mut self, choices: &mut C) {
        let ino = self.inode_number(choices);
        let number = |choices: &mut C| match choices.below(8) {
            0 => u32::MAX - u32::try_from(choices.below(4)).expect("a small number"),
            _ => u32::try_from(choices.below(80)).expect("a small number"),
        };
        match choices.below(6) {
            0 => {
                let blocks = self.anatomy.superblock.blocks_count() + 4;
                let block = u32::try_from(choices.below(blocks)).expect("a small volume");
                let (logical, len) = (number(choices), number(choices) & 0xffff);
                self.numbers(ADD_RANGE, &[ino, logical, len, block]);
            }
            1 => {
                let (start, len) = (number(choices), number(choices));
                self.numbers(DEL_RANGE, &[ino, start, len]);
            }
            2 => self.inode(ino, choices),
            _ => {
                let (kind, parent) = (*choices.pick(&NAMES), self.inode_number(choices));
                let name = match choices.below(6) {
                    0 => vec![b'n'; 255],
                    1 => b"..".to_vec(),
                    2 => vec![u8::try_from(choices.below(256)).expect("a byte")],
                    _ => format!("name-{}", choices.below(20)).into_bytes(),
                };
                self.add(kind, &[&parent.to_le_bytes()[..], &ino.to_le_bytes(), &name].concat());
            }
        }
    }

    /// Returns the number of an inode: mostly of one in use, or of a free one.
    fn inode_number<C: Choices>(&self, choices: &mut C) -> u32 {
        let inodes: Vec<_> = self.anatomy.inodes().map(|ino| ino.get()).collect();
        match choices.below(8) {
            0 => u32::try_from(choices.below(16)).expect("a small number"),
            1 | 2 => inodes.last().map_or(11, |last| last + 1 + u32::from(choices.chance(50))),
            3 => u32::MAX,
            _ => *choices.pick(&inodes),
        }
    }

    /// Logs an inode: the bytes of one of the volume, with a field changed.
    fn inode<C: Choices>(&mut self, ino: u32, choices: &mut C) {
        let all: Vec<_> =
            self.anatomy.structures.iter().flatten().filter(|found| found.class == Class::Inode).collect();
        let found = *choices.pick(&all);
        let mut inode = bytes::read(self.device, found.at, found.len);
        let (at, width) = *choices.pick(&found.fields);
        found.set(&mut inode, at, width, choices.below(1 << 16));
        let len =
            inode.len() - usize::try_from(choices.below(97).min(inode.len() as u64 - 128)).expect("a length");
        self.add(INODE, &[&ino.to_le_bytes()[..], &inode[..len]].concat());
    }
}

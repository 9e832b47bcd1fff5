//! Composes a log in the journal of a sound volume: several transactions with revocations, and fast
//! commits after them.

use std::ops::Range;

use parext4::MemDevice;
use parext4_format::FsBlock;
use parext4_format::features::{Compat, Incompat};
use parext4_format::jbd2::{
    JournalIncompat, JournalSuperblock, MAGIC, SUPERBLOCK_SIZE, Tag, TagFormat, data_checksum, encode_commit,
    encode_descriptor, encode_revoke, needs_escape, revokes_per_block, tags_per_descriptor,
};

use super::{Anatomy, bytes};
use crate::choices::Choices;

/// The most transactions of a log, and blocks that one of them logs.
const MOST_TRANSACTIONS: u64 = 8;
const MOST_BLOCKS: u64 = 12;
/// A log that was composed.
#[derive(Clone, Copy, Debug)]
pub struct Composed {
    /// The number of the transaction after the last complete one.
    pub next: u32,
    /// No part of it is wrong, so every program replays it, and to the same bytes.
    pub is_sound: bool,
}

impl Anatomy {
    /// Writes a log to the volume on `device`, which must not need a recovery. `None` if it has no
    /// journal of its own.
    ///
    /// # Panics
    /// If `device` is not a copy of the volume.
    pub fn compose_log<C: Choices>(&self, device: &MemDevice, choices: &mut C) -> Option<Composed> {
        let mut writer = Writer::new(self, device)?;
        if choices.chance(30) {
            // Somewhere, so that the log wraps around.
            let len = u64::from(writer.log.end - writer.log.start);
            writer.start += u32::try_from(choices.below(len)).expect("a block of the journal");
            writer.next = writer.start;
        }
        let flaws = choices.chance(30);
        for _ in 0..=choices.below(MOST_TRANSACTIONS) {
            writer.transaction(choices, flaws);
        }
        if choices.chance(30) {
            // The last one, which the crash cut off.
            writer.data(choices, false);
        }
        Some(writer.finish(choices.below(2) == 0))
    }
}

/// A log that is being written.
struct Writer<'a> {
    anatomy: &'a Anatomy,
    device: &'a MemDevice,
    superblock: JournalSuperblock,
    format: TagFormat,
    seed: u32,
    /// The blocks of the journal that the log may use.
    log: Range<u32>,
    /// The first block of the log, and the next one.
    start: u32,
    next: u32,
    sequence: u32,
    /// Blocks that were logged.
    logged: Vec<FsBlock>,
    is_sound: bool,
}

impl<'a> Writer<'a> {
    fn new(anatomy: &'a Anatomy, device: &'a MemDevice) -> Option<Self> {
        let at = anatomy.journal.first()? * u64::from(anatomy.superblock.block_size());
        let mut superblock = JournalSuperblock::parse(&bytes::read(device, at, SUPERBLOCK_SIZE)).ok()?;
        if superblock.start() != 0 || superblock.maxlen() as usize > anatomy.journal.len() {
            return None;
        }
        superblock.set_incompat(superblock.incompat() | JournalIncompat::REVOKE);
        if anatomy.superblock.compat().contains(Compat::FAST_COMMIT) && superblock.has_room_for_fast_commits()
        {
            // As the kernel does when it mounts the volume.
            superblock.set_incompat(superblock.incompat() | JournalIncompat::FAST_COMMIT);
        }
        let (format, seed) = (TagFormat::from(&superblock), superblock.checksum_seed());
        let (log, sequence) = (superblock.first()..superblock.log_end(), superblock.sequence());
        let (start, next) = (log.start, log.start);
        let (logged, is_sound) = (Vec::new(), true);
        Some(Self { anatomy, device, superblock, format, seed, log, start, next, sequence, logged, is_sound })
    }

    fn block_size(&self) -> usize {
        self.anatomy.superblock.block_size() as usize
    }

    /// Writes the next block of the log, which wraps around at its end.
    fn push(&mut self, block: &[u8]) {
        let at = self.anatomy.journal[self.next as usize] * self.block_size() as u64;
        bytes::write(self.device, at, block);
        self.next += 1;
        if self.next == self.log.end {
            self.next = self.log.start;
            // e2fsck 1.47 does not wrap around before the area of fast commits, as Linux 6.18 does.
            self.is_sound &= !self.superblock.incompat().contains(JournalIncompat::FAST_COMMIT);
        }
    }

    fn transaction<C: Choices>(&mut self, choices: &mut C, flaws: bool) {
        if choices.chance(40) {
            self.revoke(choices);
        }
        for _ in 0..=choices.below(2) {
            self.data(choices, flaws);
        }
        if choices.chance(20) {
            self.revoke(choices);
        }
        let mut block = vec![0; self.block_size()];
        let seconds = choices.below(1 << 32);
        encode_commit(&mut block, self.format, self.sequence, self.seed, seconds, 0);
        self.flaw(choices, flaws, &mut block);
        self.push(&block);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Writes a descriptor, and the blocks that it describes.
    fn data<C: Choices>(&mut self, choices: &mut C, flaws: bool) {
        let most = tags_per_descriptor(self.block_size(), self.format) as u64;
        let count = 1 + choices.below(MOST_BLOCKS.min(most));
        let (mut tags, mut blocks) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (block, mut content) = self.content(choices, flaws);
            let escaped = needs_escape(&content);
            if escaped {
                content[..4].fill(0);
            }
            let checksum = data_checksum(self.seed, self.sequence, &content);
            tags.push(Tag { block, escaped, deleted: choices.chance(3), checksum });
            blocks.push(content);
            self.logged.push(block);
        }
        let mut descriptor = vec![0; self.block_size()];
        let uuid = self.superblock.uuid();
        encode_descriptor(&mut descriptor, self.format, self.sequence, self.seed, &uuid, &tags);
        self.flaw(choices, flaws, &mut descriptor);
        self.push(&descriptor);
        for mut block in blocks {
            self.flaw(choices, flaws, &mut block);
            self.push(&block);
        }
    }

    /// Chooses a block of the volume, and new contents for it.
    fn content<C: Choices>(&mut self, choices: &mut C, flaws: bool) -> (FsBlock, Vec<u8>) {
        let size = self.block_size() as u64;
        if flaws && choices.chance(10) {
            self.is_sound = false;
            let most = self.anatomy.superblock.blocks_count();
            let block = if choices.chance(50) { choices.below(most) } else { most + choices.below(1 << 20) };
            return (FsBlock(block), vec![7; self.block_size()]);
        }
        let again = !self.logged.is_empty() && choices.chance(30);
        let block =
            if again { choices.pick(&self.logged).get() } else { *choices.pick(&self.anatomy.independent) };
        let mut content = match choices.below(3) {
            0 if block * size < self.device_size() => {
                bytes::read(self.device, block * size, self.block_size())
            }
            1 => MAGIC.to_be_bytes().repeat(self.block_size() / 4),
            _ => vec![1; self.block_size()],
        };
        let at = usize::try_from(choices.below(size)).expect("an offset");
        content[at] = content[at].wrapping_add(u8::try_from(1 + choices.below(255)).expect("a byte"));
        (FsBlock(block), content)
    }

    fn device_size(&self) -> u64 {
        self.anatomy.superblock.blocks_count() * self.block_size() as u64
    }

    /// Revokes blocks, most of which were logged before.
    fn revoke<C: Choices>(&mut self, choices: &mut C) {
        let most = revokes_per_block(self.block_size(), self.format) as u64;
        let mut blocks = Vec::new();
        for _ in 0..choices.below(most.min(20)) {
            blocks.push(match self.logged.is_empty() || choices.chance(20) {
                true => FsBlock(choices.below(self.anatomy.superblock.blocks_count())),
                false => *choices.pick(&self.logged),
            });
        }
        let mut block = vec![0; self.block_size()];
        encode_revoke(&mut block, self.format, self.sequence, self.seed, &blocks);
        self.push(&block);
    }

    /// Changes a byte of a block of the log, if there may be flaws and a choice says so.
    fn flaw<C: Choices>(&mut self, choices: &mut C, flaws: bool, block: &mut [u8]) {
        if flaws && choices.chance(5) {
            let at = usize::try_from(choices.below(64.min(block.len() as u64))).expect("an offset");
            block[at] ^= 1 << choices.below(8);
            self.is_sound = false;
        }
    }

    /// Marks the volume for recovery. Wipes the block after the log if `wipes`; else an older log
    /// may follow.
    fn finish(mut self, wipes: bool) -> Composed {
        if wipes {
            self.push(&vec![0; self.block_size()]);
        }
        self.superblock.set_start(self.start);
        let journal = self.anatomy.journal[0] * self.block_size() as u64;
        let mut block = bytes::read(self.device, journal, self.block_size());
        self.superblock.encode(&mut block);
        bytes::write(self.device, journal, &block);
        let mut superblock = self.anatomy.superblock.clone();
        superblock.set_incompat(superblock.incompat() | Incompat::RECOVER);
        let mut block = bytes::read(self.device, 1024, 1024);
        superblock.encode(&mut block);
        bytes::write(self.device, 1024, &block);
        Composed { next: self.sequence, is_sound: self.is_sound }
    }
}

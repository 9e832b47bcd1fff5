//! The newest logged contents of blocks of the volume, for a volume that is read without a replay to the device.
//!
//! Responsible for finding these contents. Not responsible for which logged blocks count (`replay`). At most 32 MiB of contents
//! are kept in memory. The others are read from the log again, so the index needs about 100 bytes for each further
//! block, whatever the size of the blocks and of the log.
//!
//! Invariant: contents that are read again still have the checksum in their tag, if the journal has checksums.

use std::collections::HashMap;
use std::io::IoSliceMut;

use parext4_device::AlignedBuf;
use parext4_format::LogBlock;
use parext4_format::jbd2::{self, JournalSuperblock, Tag, TagFormat};

use super::log::LogMap;
use super::log_walk::{LoggedBlock, restore_escaped};
use crate::error::{Error, Result};
use crate::sync::Arc;

/// Limit of the contents that are kept in memory, in bytes.
const MAX_KEPT: usize = 32 << 20;

/// The newest logged contents of blocks.
#[derive(Debug)]
pub(crate) struct LogIndex {
    map: LogMap,
    format: TagFormat,
    seed: u32,
    newest: HashMap<u64, Newest>,
    /// Number of blocks that are kept.
    kept: usize,
}

/// The newest contents of a block.
#[derive(Debug)]
enum Newest {
    Kept(Arc<AlignedBuf>),
    /// The place in the log, with what verifies the contents.
    Logged {
        at: LogBlock,
        sequence: u32,
        tag: Tag,
    },
}

impl LogIndex {
    /// Returns an index without blocks.
    pub(crate) fn new(map: LogMap, superblock: &JournalSuperblock) -> Self {
        let (format, seed) = (TagFormat::from(superblock), superblock.checksum_seed());
        Self { map, format, seed, newest: HashMap::new(), kept: 0 }
    }

    /// Adds a block, in place of older contents of it.
    pub(crate) fn add(&mut self, logged: &LoggedBlock<'_>) {
        let LoggedBlock { at, sequence, tag, bytes } = *logged;
        let block = tag.block.get();
        if let Some(Newest::Kept(_)) = self.newest.remove(&block) {
            self.kept -= 1;
        }
        let newest = if (self.kept + 1) * bytes.len() <= MAX_KEPT {
            self.kept += 1;
            Newest::Kept(Arc::new(AlignedBuf::from_slice(bytes)))
        } else {
            Newest::Logged { at, sequence, tag: *tag }
        };
        self.newest.insert(block, newest);
    }

    /// Returns the newest contents of a block of the volume, or `None` if the log does not have it.
    ///
    /// # Errors
    /// A failed read; corruption, if the log has changed since the block was added.
    pub(crate) fn read(&self, block: u64) -> Result<Option<Arc<AlignedBuf>>> {
        let (at, sequence, tag) = match self.newest.get(&block) {
            None => return Ok(None),
            Some(Newest::Kept(bytes)) => return Ok(Some(Arc::clone(bytes))),
            Some(Newest::Logged { at, sequence, tag }) => (*at, *sequence, tag),
        };
        let mut bytes = AlignedBuf::zeroed(self.map.block_size as usize);
        let (offset, _) = self.map.place(at)?;
        let read = self.map.device.read_at(offset, &mut [IoSliceMut::new(&mut bytes)]);
        read.map_err(|e| Error::device("reading the journal", e))?;
        if !jbd2::tag_checksum_matches(tag, self.format, self.seed, sequence, &bytes) {
            return Err(Error::corrupt(format_args!("journal: log block {at} changed while it was in use")));
        }
        restore_escaped(tag, &mut bytes);
        Ok(Some(Arc::new(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use parext4_device::Device;
    use parext4_format::FsBlock;
    use parext4_format::jbd2::JournalIncompat;

    use super::*;
    use crate::MemDevice;
    use crate::journal::log::{Log, LogExtent};
    use crate::journal::log_walk::LogWalk;
    use crate::journal::replay;

    const BLOCK: u32 = 65536;
    const LOG: u32 = 1000;

    /// Returns an empty log of 1000 blocks of 64 KiB with checksums, and the device that has it.
    fn log() -> (Arc<MemDevice>, LogMap, JournalSuperblock) {
        let device = Arc::new(MemDevice::new(u64::from(LOG) * u64::from(BLOCK)));
        let extents = vec![LogExtent { log: LogBlock(0), physical: FsBlock(0), len: LOG }];
        let map = LogMap {
            device: Arc::clone(&device) as Arc<dyn Device>,
            external: true,
            block_size: BLOCK,
            superblock: LogBlock::SUPERBLOCK,
            extents,
        };
        let mut superblock = JournalSuperblock::new(BLOCK, LOG, 1, &[7; 16]);
        superblock.set_incompat(JournalIncompat::CSUM_V3 | JournalIncompat::REVOKE);
        superblock.set_sequence(1);
        superblock.set_start(1);
        (device, map, superblock)
    }

    /// Returns the contents of block `number` in version `version`. The contents of some blocks begin as blocks of the log do.
    fn contents(number: u64, version: u8) -> Arc<AlignedBuf> {
        let mut bytes = AlignedBuf::zeroed(BLOCK as usize);
        bytes[4..12].copy_from_slice(&number.to_le_bytes());
        bytes[12] = version;
        if number.is_multiple_of(3) {
            bytes[..4].copy_from_slice(&jbd2::MAGIC.to_be_bytes());
        }
        Arc::new(bytes)
    }

    fn write(log: &mut Log, tid: u64, revoked: &[FsBlock], numbers: std::ops::Range<u64>, version: u8) {
        let blocks: Vec<_> = numbers.map(|number| (FsBlock(number), contents(number, version))).collect();
        let contents: Vec<_> = blocks.iter().map(|(number, bytes)| (*number, bytes)).collect();
        log.write_blocks(tid, revoked, &contents).unwrap();
    }

    #[test]
    fn a_replay_in_memory_of_a_full_log_of_large_blocks_keeps_32_mib() {
        let (device, map, superblock) = log();
        let mut log = Log::new(Arc::clone(&map.device), Arc::new(map.clone()), &superblock);
        write(&mut log, 1, &[], 0..600, 1);
        write(&mut log, 2, &[FsBlock(10)], 400..700, 2);
        let mut index = LogIndex::new(map.clone(), &superblock);
        let found = replay::replay(&map, &superblock, 1 << 20, &mut |block| {
            index.add(&block);
            Ok(())
        });
        assert_eq!(found.unwrap().transactions, 2);
        assert!(index.kept * BLOCK as usize <= MAX_KEPT && index.kept > 400, "{} are kept", index.kept);
        for number in (0..700).filter(|&number| number != 10) {
            let version = if number < 400 { 1 } else { 2 };
            let found = index.read(number).unwrap().expect("a logged block");
            assert!(found[..] == contents(number, version)[..], "block {number}");
        }
        assert!(index.read(700).unwrap().is_none() && index.read(10).unwrap().is_none());
        // Another program writes to the log. The last block lies before the last commit block.
        let last = u64::from(log.head().get() - 2) * u64::from(BLOCK);
        device.write_at(last + 512, &[std::io::IoSlice::new(&[1; 512])]).unwrap();
        assert!(matches!(index.read(699), Err(Error::Corrupt(_))));
    }

    #[test]
    fn revocations_of_blocks_that_are_not_in_the_log_take_no_memory() {
        let (_device, map, superblock) = log();
        let mut log = Log::new(Arc::clone(&map.device), Arc::new(map.clone()), &superblock);
        let revoked: Vec<_> = (5..1_000_000).map(FsBlock).collect();
        write(&mut log, 1, &revoked, 9..10, 1);
        let mut logged = HashMap::from([(9, None), (4, None)]);
        LogWalk::new(&map, &superblock).revokes(1, &mut logged).unwrap();
        assert_eq!(logged, HashMap::from([(9, Some(1)), (4, None)]));
    }

    #[test]
    fn a_damaged_copy_counts_only_if_no_transaction_revokes_it() {
        let (device, map, superblock) = log();
        let mut log = Log::new(Arc::clone(&map.device), Arc::new(map.clone()), &superblock);
        let mut write_and_damage = |tid, revoked: &[FsBlock], number| {
            write(&mut log, tid, revoked, number..number + 1, 1);
            let data = u64::from(log.head().get() - 2) * u64::from(BLOCK);
            device.write_at(data + 512, &[std::io::IoSlice::new(&[1; 512])]).unwrap();
            replay::replay(&map, &superblock, 1 << 20, &mut |_| Ok(()))
        };
        assert!(matches!(write_and_damage(1, &[], 9), Err(Error::Corrupt(_))));
        assert!(matches!(write_and_damage(2, &[FsBlock(9)], 10), Err(Error::Corrupt(_))));
        write(&mut log, 3, &[FsBlock(10)], 11..12, 1);
        let found = replay::replay(&map, &superblock, 1 << 20, &mut |block| {
            assert_eq!(block.tag.block, FsBlock(11));
            Ok(())
        });
        assert_eq!(found.unwrap().transactions, 3);
    }
}

//! Finds the journal and replays it, before the open reads any other structure.

use std::io::IoSlice;

use parext4_device::{AlignedBuf, Device};
use parext4_format::features::{Compat, Incompat};
use parext4_format::group_desc::GroupDesc;
use parext4_format::inode::Inode as RawInode;
use parext4_format::jbd2::{JournalCompat, JournalIncompat, JournalSuperblock};
use parext4_format::superblock::{Access, Superblock};
use parext4_format::{BlockRange, FsBlock, GroupNo, InodeNo, LogBlock};

use super::descriptors::is_count;
use super::overlay::{Blocks, OverlayDevice, ScratchDevice};
use super::{fast_commit, journal_device};
use crate::block_map::{BlockMap, BlockMapRoot};
use crate::clock::Clock;
use crate::convert::to_usize;
use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::journal::{self, FastCommits, LogExtent, LogMap};
use crate::layout::Layout;
use crate::mapping::BlockState;
use crate::memory::Budget;
use crate::meta::{BlockKind, MetaCache};
use crate::superblock::read_usable_superblock;
use crate::sync::Arc;

/// The journal of a volume that is being opened.
#[derive(Clone, Debug)]
pub(super) struct JournalPlace {
    pub map: LogMap,
    pub superblock: JournalSuperblock,
    pub next_sequence: u32,
    /// False if the volume is changed without the journal, which only tells which blocks belong to
    /// it.
    pub is_written: bool,
    /// The clock of the transaction that a replay of fast commits writes.
    pub clock: Clock,
}

/// Where the blocks of the log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplayTarget {
    /// To the volume.
    Device,
    /// To memory, for a volume that is only read.
    Memory,
}

/// Returns an engine over a volume in memory, which does not write to the journal.
pub(super) type BuildScratch =
    fn(Arc<dyn Device>, Superblock, &JournalPlace, ReplayTarget) -> Result<EngineRef>;

/// Result of [`replay_journal`](crate::replay_journal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// Number of transactions replayed.
    pub transactions: u32,
    /// Number of blocks written to their place on the volume.
    pub blocks: u64,
}

impl Replayed {
    pub(super) const NOTHING: Self = Self { transactions: 0, blocks: 0 };
}

/// Replays or skips the log. Returns the device to continue with: if `in_memory` is set and the log
/// needs replay, an overlay that returns the replayed blocks and leaves the real device unchanged.
pub(super) fn recover(
    device: Arc<dyn Device>,
    journal: Option<JournalPlace>,
    superblock: &Superblock,
    in_memory: bool,
    build: BuildScratch,
) -> Result<(Arc<dyn Device>, Option<JournalPlace>)> {
    let Some(place) = journal else { return Ok((device, None)) };
    let (device, place) = if !superblock.incompat().contains(Incompat::RECOVER) {
        // Without the flag, all blocks in the log are stale, as in the kernel.
        let place = if in_memory { place } else { place.discard_log()? };
        (device, place)
    } else if in_memory {
        let (place, replayed, _) = place.replay_in_memory(device, superblock, build)?;
        (replayed, place)
    } else {
        let (place, _) = place.replay_home(&device, superblock, build)?;
        (device, place)
    };
    Ok((device, Some(place)))
}

impl JournalPlace {
    /// Finds the journal, if the volume has one: in the volume, or on `external`. A volume that is
    /// only read and needs no recovery is used without a journal on a device that was not named.
    pub(super) fn find(
        device: &Arc<dyn Device>,
        superblock: &Superblock,
        external: Option<&Arc<dyn Device>>,
        read_only: bool,
        clock: Clock,
    ) -> Result<Option<Self>> {
        let has_journal = superblock.compat().contains(Compat::HAS_JOURNAL);
        let is_external = has_journal && superblock.journal_inode() == 0;
        match external {
            Some(external) if is_external => {
                let (map, superblock) = journal_device::open(external, superblock)?;
                let next_sequence = superblock.sequence();
                return Ok(Some(Self { map, superblock, next_sequence, is_written: true, clock }));
            }
            Some(_) => return Err(Error::invalid("the volume has no journal on a device of its own")),
            None if is_external => {
                let needed = !read_only || superblock.incompat().contains(Incompat::RECOVER);
                return if needed { Err(journal_device::missing(superblock)) } else { Ok(None) };
            }
            None if !has_journal => return Ok(None),
            None => {}
        }
        let ino = InodeNo(superblock.journal_inode());
        if ino != InodeNo::JOURNAL {
            return Err(Error::corrupt_field("superblock", "s_journal_inum", ino));
        }
        let map = journal_map(device, superblock)?;
        let superblock = journal::read_superblock(&map)?;
        let next_sequence = superblock.sequence();
        Ok(Some(Self { map, superblock, next_sequence, is_written: true, clock }))
    }

    /// Writes the blocks of the log, and the blocks that its fast commits change, to their home
    /// locations.
    pub(super) fn replay_home(
        mut self,
        device: &Arc<dyn Device>,
        superblock: &Superblock,
        build: BuildScratch,
    ) -> Result<(Self, Replayed)> {
        let (end, block_size) = (device.size() >> superblock.block_bits(), superblock.block_size());
        let (log, recovered) = journal::read_log(&self.map, &self.superblock, end)?;
        journal::replay(device, block_size, log)?;
        guarded!(Fault::ReplayUnflushed, flush(&**device)?);
        let (mut next, mut blocks) = (recovered.next_sequence, recovered.blocks);
        let mut transactions = recovered.transactions;
        if let Some(changed) = self.fast_commits(device, superblock, next, build, ReplayTarget::Device)? {
            let mut contents: Vec<_> =
                changed.into_iter().map(|(block, bytes)| (FsBlock(block), bytes)).collect();
            contents.sort_unstable_by_key(|&(block, _)| block);
            journal::log_replayed(device, &self.map, &mut self.superblock, next, &contents, self.clock)?;
            journal::write_home(device, block_size, &contents)?;
            flush(&**device)?;
            (next, blocks) = (next.wrapping_add(1), blocks + contents.len() as u64);
            transactions += 1;
        }
        if recovered.has_later {
            self = self.discard_log()?;
        } else {
            self.restart_after(next);
        }
        Ok((self, Replayed { transactions, blocks }))
    }

    /// Replays the log, and its fast commits, without writing to the device. Returns the device as
    /// they leave it, which has at most 32 MiB of the log in memory, and the blocks that fast
    /// commits change.
    pub(super) fn replay_in_memory(
        mut self,
        device: Arc<dyn Device>,
        superblock: &Superblock,
        build: BuildScratch,
    ) -> Result<(Self, Arc<dyn Device>, Replayed)> {
        let (end, block_size) = (device.size() >> superblock.block_bits(), superblock.block_size());
        let (mut log, recovered) = journal::read_log(&self.map, &self.superblock, end)?;
        log.keep()?;
        let mut replayed: Arc<dyn Device> = Arc::new(OverlayDevice::new(device, block_size, log));
        let next = recovered.next_sequence;
        let mut done = Replayed { transactions: recovered.transactions, blocks: recovered.blocks };
        if let Some(changed) = self.fast_commits(&replayed, superblock, next, build, ReplayTarget::Memory)? {
            done.transactions += 1;
            done.blocks += changed.len() as u64;
            replayed = Arc::new(OverlayDevice::new(replayed, block_size, changed));
        }
        self.restart_after(next);
        Ok((self, replayed, done))
    }

    /// Returns the blocks that the fast commits of transaction `tid` change, or `None` if there are
    /// no fast commits. `device` has the blocks of the log at their home locations.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the volume has a feature that forbids to change it, or the fast
    /// commits change more blocks than the log has. Corruption.
    fn fast_commits(
        &self,
        device: &Arc<dyn Device>,
        found: &Superblock,
        tid: u32,
        build: BuildScratch,
        target: ReplayTarget,
    ) -> Result<Option<Blocks>> {
        let (superblock, access) = read_usable_superblock(&**device)?;
        check_replayed(found, &superblock)?;
        let changes = FastCommits::find(&self.map, &self.superblock, tid, superblock.inode_size())?;
        if changes.is_empty() {
            return Ok(None);
        }
        if let Access::ReadOnly { because } = access {
            let because = because.join(", ");
            return Err(Error::Unsupported(format!("fast commits with feature {because}; run e2fsck")));
        }
        // The changed blocks become one transaction, and are in memory until then.
        let log = self.superblock.log_end() - self.superblock.first();
        let limit = journal::usable(log, superblock.block_size());
        let scratch = Arc::new(ScratchDevice::new(Arc::clone(device), superblock.block_size(), limit));
        let engine = build(Arc::clone(&scratch) as Arc<dyn Device>, superblock, self, target)?;
        fast_commit::replay(&engine, &changes)?;
        Ok(Some(scratch.take()))
    }

    /// Sets the journal features that match the volume's. The caller has replayed or skipped the
    /// log, because the replay reads the log by the features with which it was written.
    pub(super) fn with_features_of(mut self, superblock: &Superblock) -> Self {
        set_features(&mut self.superblock, superblock);
        self
    }

    /// Discards what the log has after the replayed transactions, or a whole log that is not
    /// replayed: the next transaction gets a number that does not continue any block of the log.
    fn discard_log(mut self) -> Result<Self> {
        let newest = journal::newest_sequence(&self.map, &self.superblock)?;
        // Fast commits in their area may belong to the transaction after the newest one of the log.
        self.restart_after(newest.wrapping_add(1));
        Ok(self)
    }

    /// Numbers the next transaction so that recovery cannot mistake a stale block of the log for a
    /// part of it. jbd2 does the same, and also skips a number if the log was empty.
    fn restart_after(&mut self, sequence: u32) {
        self.next_sequence = sequence.wrapping_add(1);
    }
}

/// Checks that the replay did not change the superblock fields that located the journal. The volume
/// may have grown (online resize).
pub(super) fn check_replayed(found: &Superblock, now: &Superblock) -> Result<()> {
    let journal = |superblock: &Superblock| {
        (superblock.compat().contains(Compat::HAS_JOURNAL), superblock.journal_inode())
    };
    let changed = if found.block_size() != now.block_size() {
        "s_log_block_size"
    } else if journal(found) != journal(now) {
        "s_journal_inum"
    } else if found.blocks_count() > now.blocks_count() {
        "s_blocks_count"
    } else {
        return Ok(());
    };
    Err(Error::corrupt_field("superblock", changed, "the journal replaces it"))
}

/// Sets the journal features that match the volume's, as the kernel does when it opens an empty
/// log.
fn set_features(jsb: &mut JournalSuperblock, superblock: &Superblock) {
    let mut features = jsb.incompat() | JournalIncompat::REVOKE;
    if superblock.incompat().contains(Incompat::BIT64) {
        features |= JournalIncompat::BIT64;
    }
    features -= JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3 | JournalIncompat::ASYNC_COMMIT;
    if superblock.checksum_seed().is_some() {
        features |= JournalIncompat::CSUM_V3;
    }
    // With the feature, the log ends before the area of fast commits, although this crate writes
    // none.
    let fast_commit = superblock.compat().contains(Compat::FAST_COMMIT) && jsb.has_room_for_fast_commits();
    features.set(JournalIncompat::FAST_COMMIT, fast_commit);
    jsb.set_incompat(features);
    // An obsolete checksum of commit blocks. It excludes the later kinds, and this crate does not
    // write it.
    jsb.set_compat(jsb.compat() - JournalCompat::CHECKSUM);
}

/// Reads the extents of the journal inode, before the replay: the journal never moves.
fn journal_map(device: &Arc<dyn Device>, superblock: &Superblock) -> Result<LogMap> {
    let layout = Arc::new(Layout::new(superblock));
    let (size, count) = (layout.block_size.bytes(), layout.blocks_count);
    let cache = Arc::new(MetaCache::new(Arc::clone(device), size, count, &Budget::new(0)));
    let raw = journal_inode(&cache, &layout, superblock)?;
    let seed = layout.seed.map(|seed| seed.inode(InodeNo::JOURNAL, raw.generation));
    let root = BlockMapRoot { ino: InodeNo::JOURNAL, seed, flags: raw.flags, block: raw.block };
    let block_map = BlockMap::load(&root, &layout, &cache, true)?;
    let end = block_map.end()?;
    if end > count {
        return Err(Error::corrupt(format_args!("journal inode: more blocks than the volume's {count}")));
    }
    let mut extents = Vec::new();
    for run in block_map.runs(BlockRange::clamped(0, end)) {
        let run = run?;
        let BlockState::Written(physical) = run.state else {
            let block = run.logical;
            return Err(Error::corrupt(format_args!("journal inode: block {block} is not written")));
        };
        extents.push(LogExtent { log: LogBlock(run.logical.get()), physical, len: run.len });
    }
    // A log that has one block in many places would be far longer than the device.
    let mut places: Vec<_> = extents.iter().map(|run| (run.physical.get(), u64::from(run.len))).collect();
    places.sort_unstable();
    if places.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        return Err(Error::corrupt("journal inode: its extents overlap"));
    }
    let (device, block_size) = (Arc::clone(device), layout.block_size.bytes());
    Ok(LogMap { device, external: false, block_size, superblock: LogBlock::SUPERBLOCK, extents })
}

fn journal_inode(cache: &MetaCache, layout: &Layout, superblock: &Superblock) -> Result<RawInode> {
    let gdt = cache.read(superblock.gdt_block(0), BlockKind::GroupDescs)?.snapshot();
    let raw = gdt
        .get(..usize::from(superblock.desc_size()))
        .ok_or_else(|| Error::corrupt("group 0: the descriptor is cut off"))?;
    let desc = match GroupDesc::parse(raw, superblock, GroupNo(0)) {
        // Only the place of the inode table matters here.
        Err(error) if is_count(&error) => GroupDesc::parse_locations(raw, superblock)?,
        parsed => parsed?,
    };
    let (_, index) = layout.inode_place(InodeNo::JOURNAL)?;
    let byte = u64::from(index) * u64::from(layout.inode_size);
    let block_size = u64::from(layout.block_size.bytes());
    let block = FsBlock(desc.inode_table.get().saturating_add(byte / block_size));
    let bytes = cache.read(block, BlockKind::InodeTable)?.snapshot();
    let at = to_usize(byte % block_size);
    let raw = bytes
        .get(at..at + usize::from(layout.inode_size))
        .ok_or_else(|| Error::corrupt("the journal inode lies outside its block"))?;
    Ok(RawInode::parse(raw, superblock, InodeNo::JOURNAL)?)
}

pub(super) fn write(device: &dyn Device, offset: u64, bytes: &AlignedBuf) -> Result<()> {
    device.write_at(offset, &[IoSlice::new(bytes)]).map_err(|e| Error::device("replaying the journal", e))
}

pub(super) fn flush(device: &dyn Device) -> Result<()> {
    device.flush().map_err(|e| Error::device("flushing the device", e))
}

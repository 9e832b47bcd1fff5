//! Finds the journal and replays it, before the open reads any other structure.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};

use parext4_device::{AlignedBuf, Device, forward_device};
use parext4_format::features::{Compat, Incompat};
use parext4_format::group_desc::GroupDesc;
use parext4_format::inode::Inode as RawInode;
use parext4_format::jbd2::{JournalCompat, JournalIncompat, JournalSuperblock};
use parext4_format::superblock::Superblock;
use parext4_format::{BlockRange, FsBlock, GroupNo, InodeNo, LogBlock};

use super::VolumeOptions;
use crate::body::{Body, BodyRoot};
use crate::convert::to_usize;
use crate::superblock::{read_superblock, read_usable_superblock};

use crate::error::{Error, Result};
use crate::journal::{self, LogExtent, LogMap};
use crate::layout::Layout;
use crate::mapping::State;
use crate::memory::Budget;
use crate::meta::{BlockKind, MetaCache};
use crate::mmp::Protection;
use crate::sync::Arc;

/// The journal of a volume that is being opened.
#[derive(Debug)]
pub(super) struct JournalPlace {
    pub map: LogMap,
    pub superblock: JournalSuperblock,
    pub next_sequence: u32,
}

/// Result of [`replay_journal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// Number of transactions replayed.
    pub transactions: u32,
    /// Number of blocks written to their place on the volume.
    pub blocks: u64,
}

impl Replayed {
    const NOTHING: Self = Self { transactions: 0, blocks: 0 };
}

/// Returns true if an open must replay the journal of the volume on `device`: the volume is in use, or was not closed
/// cleanly.
///
/// ```
/// use parext4::{MemDevice, MkfsOptions, mkfs, needs_recovery};
///
/// let device = MemDevice::new(16 << 20);
/// mkfs(&device, &MkfsOptions::new())?;
/// assert!(!needs_recovery(&device)?);
/// # Ok::<(), parext4::Error>(())
/// ```
///
/// # Errors
/// The errors of [`Volume::open_device`](crate::Volume::open_device).
pub fn needs_recovery(device: &dyn Device) -> Result<bool> {
    let (superblock, _) = read_usable_superblock(device)?;
    Ok(superblock.incompat().contains(Incompat::RECOVER))
}

/// Replays the journal of the volume on `device` if it needs recovery, as `e2fsck -E journal_only` does. Processes no
/// orphans, and checks nothing else.
///
/// ```
/// use std::sync::Arc;
/// use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs, needs_recovery, replay_journal};
///
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::new())?;
/// let volume = Volume::open_device(device.clone(), &VolumeOptions::new())?;
/// volume.mkdir("/dir", 0o755)?;
/// volume.abort()?;
/// drop(volume);
/// assert!(replay_journal(device.clone())?.transactions > 0);
/// assert!(!needs_recovery(&*device)?);
/// # Ok::<(), parext4::Error>(())
/// ```
///
/// # Errors
/// The errors of [`Volume::open_device`](crate::Volume::open_device).
pub fn replay_journal(device: Arc<dyn Device>) -> Result<Replayed> {
    VolumeOptions::new().replay_journal(device)
}

impl VolumeOptions {
    /// Replays the journal as [`replay_journal`] does, with these options of multi-mount protection.
    ///
    /// # Errors
    /// The errors of [`replay_journal`].
    pub fn replay_journal(&self, device: Arc<dyn Device>) -> Result<Replayed> {
        let (superblock, _) = read_usable_superblock(&*device)?;
        if !superblock.incompat().contains(Incompat::RECOVER) {
            return Ok(Replayed::NOTHING);
        }
        let Some((protection, device)) = Protection::claim(&device, &superblock, &self.mmp)? else {
            return replay(&device);
        };
        let done = replay(&device);
        protection.release(done.is_ok());
        done
    }
}

fn replay(device: &Arc<dyn Device>) -> Result<Replayed> {
    let (superblock, _) = read_usable_superblock(&**device)?;
    let needs = superblock.incompat().contains(Incompat::RECOVER);
    let Some(place) = JournalPlace::find(device, &superblock)?.filter(|_| needs) else {
        return Ok(Replayed::NOTHING);
    };
    let device = &**device;
    let (place, done) = place.replay_home(device, &superblock)?;
    let mut jsb = place.superblock;
    jsb.set_start(0);
    jsb.set_sequence(place.next_sequence);
    let mut block = AlignedBuf::zeroed(place.map.block_size as usize);
    jsb.encode(&mut block);
    write(device, place.map.place(LogBlock::SUPERBLOCK)?.0, &block)?;
    // Empties the log before clearing the flag. In the other order, a crash in between would discard the log as stale.
    flush(device)?;

    let found = superblock;
    let mut superblock = read_superblock(device)?;
    superblock.keep_errors_of(&found);
    superblock.set_incompat(superblock.incompat() - Incompat::RECOVER);
    let mut bytes = AlignedBuf::zeroed(4096);
    read(device, 0, &mut bytes)?;
    superblock.encode(&mut bytes[1024..2048]);
    write(device, 0, &bytes)?;
    flush(device)?;
    Ok(done)
}

/// Replays or skips the log. Returns the device to continue with: if `in_memory` is set and the log needs replay, an
/// overlay that returns the replayed blocks and leaves the real device unchanged.
pub(super) fn recover(
    device: Arc<dyn Device>,
    journal: Option<JournalPlace>,
    superblock: &Superblock,
    in_memory: bool,
) -> Result<(Arc<dyn Device>, Option<JournalPlace>)> {
    let Some(place) = journal else { return Ok((device, None)) };
    let (device, place) = if !superblock.incompat().contains(Incompat::RECOVER) {
        // Without the flag, all blocks in the log are stale, as in the kernel.
        let place = if in_memory { place } else { place.skip_log(&*device)? };
        (device, place)
    } else if in_memory {
        let (place, overlay) = place.replay_in_memory(device, superblock)?;
        (Arc::new(overlay) as Arc<dyn Device>, place)
    } else {
        let (place, _) = place.replay_home(&*device, superblock)?;
        (device, place)
    };
    Ok((device, Some(place)))
}

impl JournalPlace {
    /// Finds the journal, if the volume has one.
    pub(super) fn find(device: &Arc<dyn Device>, superblock: &Superblock) -> Result<Option<Self>> {
        if !superblock.compat().contains(Compat::HAS_JOURNAL) {
            return Ok(None);
        }
        let ino = InodeNo(superblock.journal_inode());
        if ino != InodeNo::JOURNAL {
            return Err(Error::corrupt_field("superblock", "s_journal_inum", ino));
        }
        let map = journal_map(device, superblock)?;
        let superblock = journal::read_superblock(&**device, &map)?;
        let next_sequence = superblock.sequence();
        Ok(Some(Self { map, superblock, next_sequence }))
    }

    fn replay_home(mut self, device: &dyn Device, superblock: &Superblock) -> Result<(Self, Replayed)> {
        let bits = superblock.block_bits();
        let blocks = superblock.blocks_count();
        let recovered = journal::replay(device, &self.map, &self.superblock, blocks, &mut |block, bytes| {
            write(device, block.get() << bits, &AlignedBuf::from_slice(bytes))
        })?;
        flush(device)?;
        self.restart_after(recovered.next_sequence);
        Ok((self, Replayed { transactions: recovered.transactions, blocks: recovered.blocks }))
    }

    fn replay_in_memory(
        mut self,
        device: Arc<dyn Device>,
        superblock: &Superblock,
    ) -> Result<(Self, OverlayDevice)> {
        let mut blocks = HashMap::new();
        let count = superblock.blocks_count();
        let recovered =
            journal::replay(&*device, &self.map, &self.superblock, count, &mut |block, bytes| {
                blocks.insert(block.get(), bytes.to_vec());
                Ok(())
            })?;
        self.restart_after(recovered.next_sequence);
        Ok((self, OverlayDevice { inner: device, block_size: superblock.block_size(), blocks }))
    }

    /// Sets the journal features that match the volume's. The caller has replayed or skipped the log, because the replay
    /// reads the log by the features with which it was written.
    pub(super) fn with_features_of(mut self, superblock: &Superblock) -> Self {
        set_features(&mut self.superblock, superblock);
        self
    }

    /// Discards a log that is not replayed: the next transaction gets a number that does not continue any block of the log.
    fn skip_log(mut self, device: &dyn Device) -> Result<Self> {
        let newest = journal::newest_sequence(device, &self.map, &self.superblock)?;
        self.restart_after(newest);
        Ok(self)
    }

    /// Numbers the next transaction so that recovery cannot mistake a stale block of the log for a part of it. jbd2 does
    /// the same, and also skips a number if the log was empty.
    fn restart_after(&mut self, sequence: u32) {
        self.next_sequence = sequence.wrapping_add(1);
    }
}

/// Sets the journal features that match the volume's, as the kernel does when it opens an empty log.
fn set_features(jsb: &mut JournalSuperblock, superblock: &Superblock) {
    let mut features = jsb.incompat() | JournalIncompat::REVOKE;
    if superblock.incompat().contains(Incompat::BIT64) {
        features |= JournalIncompat::BIT64;
    }
    features -= JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3 | JournalIncompat::ASYNC_COMMIT;
    if superblock.checksum_seed().is_some() {
        features |= JournalIncompat::CSUM_V3;
    }
    jsb.set_incompat(features);
    // An obsolete checksum of commit blocks. It excludes the later kinds, and this crate does not write it.
    jsb.set_compat(jsb.compat() - JournalCompat::CHECKSUM);
}

/// Reads the extents of the journal inode, before the replay: the journal never moves.
fn journal_map(device: &Arc<dyn Device>, superblock: &Superblock) -> Result<LogMap> {
    let layout = Arc::new(Layout::new(superblock));
    let (size, count) = (layout.block_size.bytes(), layout.blocks_count);
    let cache = Arc::new(MetaCache::new(Arc::clone(device), size, count, &Budget::new(0)));
    let raw = journal_inode(&cache, &layout, superblock)?;
    let seed = layout.seed.map(|seed| seed.inode(InodeNo::JOURNAL, raw.generation));
    let root = BodyRoot { ino: InodeNo::JOURNAL, seed, flags: raw.flags, block: raw.block };
    let body = Body::load(&root, &layout, &cache, true)?;
    let end = body.end()?;
    if end > count {
        return Err(Error::corrupt(format_args!("journal inode: more blocks than the volume's {count}")));
    }
    let mut extents = Vec::new();
    for run in body.runs(BlockRange::clamped(0, end)) {
        let run = run?;
        let State::Written(physical) = run.state else {
            let block = run.logical;
            return Err(Error::corrupt(format_args!("journal inode: block {block} is not written")));
        };
        extents.push(LogExtent { log: LogBlock(run.logical.get()), physical, len: run.len });
    }
    Ok(LogMap { block_size: layout.block_size.bytes(), extents })
}

fn journal_inode(cache: &MetaCache, layout: &Layout, superblock: &Superblock) -> Result<RawInode> {
    let gdt = cache.read(superblock.first_gdt_block(), BlockKind::GroupDescs)?.snapshot();
    let raw = gdt
        .get(..usize::from(superblock.desc_size()))
        .ok_or_else(|| Error::corrupt("group 0: the descriptor is cut off"))?;
    let desc = GroupDesc::parse(raw, superblock, GroupNo(0))?;
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

fn read(device: &dyn Device, offset: u64, bytes: &mut AlignedBuf) -> Result<()> {
    device.read_at(offset, &mut [IoSliceMut::new(bytes)]).map_err(|e| Error::device("reading the volume", e))
}

fn write(device: &dyn Device, offset: u64, bytes: &AlignedBuf) -> Result<()> {
    device.write_at(offset, &[IoSlice::new(bytes)]).map_err(|e| Error::device("replaying the journal", e))
}

fn flush(device: &dyn Device) -> Result<()> {
    device.flush().map_err(|e| Error::device("flushing the device", e))
}

/// A read-only device that returns replayed blocks in place of its own, for a volume that must not be written.
#[derive(Debug)]
struct OverlayDevice {
    inner: Arc<dyn Device>,
    block_size: u32,
    blocks: HashMap<u64, Vec<u8>>,
}

impl Device for OverlayDevice {
    forward_device!(this => this.inner; size, sector_size, network);

    fn read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.inner.read_at(offset, bufs)?;
        let block_size = u64::from(self.block_size);
        let mut at = offset;
        for buf in bufs {
            let mut rest = &mut buf[..];
            while !rest.is_empty() {
                let skip = at % block_size;
                let here = to_usize(block_size - skip).min(rest.len());
                let (now, later) = rest.split_at_mut(here);
                if let Some(block) = self.blocks.get(&(at / block_size)) {
                    let skip = to_usize(skip);
                    now.copy_from_slice(&block[skip..skip + here]);
                }
                rest = later;
                at += here as u64;
            }
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[IoSlice<'_>]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

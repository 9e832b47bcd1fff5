//! Opens a volume: superblock, journal, descriptors, orphans.

use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Weak;
use std::time::Duration;

use parext4_device::{AlignedBuf, Device};
use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::group_desc::GroupDesc;
use parext4_format::superblock::{Access, STATE_ERROR, STATE_VALID, Superblock};
use parext4_format::{FsBlock, GroupNo, InodeNo};

use super::Volume;
use super::descriptors::{count_unwritten, read_descriptors};
use super::options::VolumeOptions;
use super::recover::{self, JournalPlace, ReplayTarget};
use crate::allocator::{AllocationOptions, Allocator, SuperCounts};
use crate::dirty_files::{DirtyFiles, Limits};
use crate::engine::{
    CommitTimer, Deletions, Engine, EngineParts, EngineRef, ErrorRecorder, Hooks, IdleCache, LazyTimes,
};
use crate::error::{Error, Result};
use crate::flush_turn::FlushTurn;
use crate::health::Health;
use crate::inode::InodeCache;
use crate::journal::Journal;
use crate::layout::Layout;
use crate::memory::{Budget, Evict};
use crate::meta::{BlockKind, MetaCache};
use crate::mmp::{self, MmpState, Protection};
use crate::page_cache::{PageCache, PageSize};
use crate::quota::QUOTA_CREDITS;
use crate::stats::VolumeUsage;
use crate::superblock::read_usable_superblock;
use crate::sync::Arc;
use crate::write_count::{CountedDevice, WriteCount};

impl Volume {
    /// Opens the volume in an image file or on a block device, for reading and writing, with the
    /// default options: [`VolumeOptions::open`].
    ///
    /// ```
    /// use parext4::device::FileDevice;
    /// use parext4::{DeviceOptions, MkfsOptions, Volume, mkfs};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.img");
    /// mkfs(&FileDevice::open(&path, &DeviceOptions::new().create(64 << 20))?, &MkfsOptions::new())?;
    /// let volume = Volume::open(&path)?;
    /// volume.create_dir("/dir", 0o755)?;
    /// volume.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`VolumeOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        VolumeOptions::new().open(path)
    }

    /// Opens the volume on `device`. Replays its journal if the volume was not closed cleanly, and
    /// deletes inodes that lost their last name while they were open.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};
    ///
    /// let device = Arc::new(MemDevice::new(16 << 20));
    /// mkfs(&*device, &MkfsOptions::new())?;
    /// let volume = Volume::open_device(device, &VolumeOptions::new())?;
    /// assert!(volume.exists("/")?);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`] names the structure that fails a check, [`Error::Unsupported`] the
    /// feature that parext4 lacks. [`Error::ReadOnly`] if the volume can only be opened read-only.
    /// [`Error::Invalid`] if the journal needs recovery, and the options ask for writing but not
    /// for recovery.
    pub fn open_device(device: Arc<dyn Device>, options: &VolumeOptions) -> Result<Self> {
        let (found, access) = read_usable_superblock(&*device)?;
        if !options.recover && !options.read_only && found.incompat().contains(Incompat::RECOVER) {
            return Err(Error::invalid("the journal needs recovery; without it the volume can only be read"));
        }
        let read_only = read_only_reason(&*device, options, access)?;
        let with_turn = |device| match read_only {
            Some(_) => device,
            None => Arc::new(FlushTurn::new(device)) as Arc<dyn Device>,
        };
        let device = with_turn(device);
        let Exclusion { device, found, protection, live } =
            exclude_others(device, found, read_only.is_some(), options)?;

        let written = Arc::new(WriteCount::default());
        let device = match read_only {
            Some(_) => device,
            None => Arc::new(CountedDevice::new(device, &written)) as Arc<dyn Device>,
        };
        let recover = options.recover && live.is_none();
        let external = options.journal_device.clone().map(with_turn).map(|external| match &protection {
            Some(protection) => protection.lease(&external),
            None => external,
        });
        let find =
            || JournalPlace::find(&device, &found, external.as_ref(), read_only.is_some(), options.clock);
        let journal = if recover {
            find().or_else(|error| unneeded(error, read_only.is_some(), &found))?
        } else {
            None
        };
        let (device, journal) =
            recover::recover(device, journal, &found, read_only.is_some(), build_scratch)?;
        // The replay may have replaced the superblock by a block of the log, which passed no check
        // yet.
        let (mut superblock, access) = read_usable_superblock(&*device)?;
        recover::check_replayed(&found, &superblock)?;
        // The replay overwrites an error record that was written to the superblock directly, not
        // through the journal.
        superblock.keep_errors_of(&found);
        if journal.as_ref().is_some_and(|journal| journal.superblock.errno() != 0) {
            superblock.set_state(superblock.state() | STATE_ERROR);
        }
        let read_only = read_only_reason(&*device, options, access)?;
        let journal = journal.map(|journal| journal.with_features_of(&superblock));

        let journaled = journal.is_some();
        let parts =
            Parts { device, superblock, journal, read_only, protection, live, written, needs_quotas: true };
        let engine = EngineRef::new(&build(parts, options)?);
        if !engine.is_read_only() {
            // A program that opens the volume names the errors on record itself (`Info::errors`).
            if engine.superblock().error_count() == 0
                && let Some(reason) = engine.superblock().reason_to_check(options.clock.now().seconds)
            {
                log::warn!("the volume should be checked by e2fsck: {reason}");
            }
            engine.mark_open(journaled)?;
            engine.process_orphans()?;
            if let Some(interval) = options.commit_interval {
                let _ = engine.timer().set(engine.start_timer(interval)?);
            }
        }
        Ok(Self { engine })
    }
}

/// Returns no journal in place of one that cannot be used, for a volume that is only read and whose
/// log is empty.
///
/// # Errors
/// `error`, if the journal is needed.
fn unneeded(error: Error, read_only: bool, superblock: &Superblock) -> Result<Option<JournalPlace>> {
    let is_needed = !read_only || superblock.incompat().contains(Incompat::RECOVER);
    match error {
        Error::Corrupt(_) | Error::Device { .. } if !is_needed => {
            log::warn!("the journal is not used: {error}");
            Ok(None)
        }
        error => Err(error),
    }
}

/// What keeps other machines from writing to a volume that is being opened, or the machine that may
/// do so.
struct Exclusion {
    device: Arc<dyn Device>,
    found: Superblock,
    protection: Option<Protection>,
    /// The machine that has the volume open, if this open is only for reading.
    live: Option<MmpState>,
}

/// Makes this machine the owner of a volume with multi-mount protection, before anything else is
/// read. A read-only open claims nothing.
fn exclude_others(
    device: Arc<dyn Device>,
    found: Superblock,
    read_only: bool,
    options: &VolumeOptions,
) -> Result<Exclusion> {
    if read_only {
        let live =
            if options.recover { mmp::live(&*device, &found, &options.mmp, options.clock)? } else { None };
        if let Some(live) = &live {
            log::warn!("{}", live.warn_reader());
        }
        return Ok(Exclusion { device, found, protection: None, live });
    }
    check_protection_block(&*device, &found)?;
    let Some((protection, device)) = Protection::claim(&device, &found, &options.mmp, options.clock)? else {
        return Ok(Exclusion { device, found, protection: None, live: None });
    };
    // An earlier owner may have changed the superblock during the waits.
    let (found, _) = read_usable_superblock(&*device)?;
    Ok(Exclusion { device, found, protection: Some(protection), live: None })
}

/// Checks that the block of multi-mount protection, which a claim writes, belongs to no structure
/// of a group.
///
/// Another machine may be writing the descriptors, and a log may have newer ones. So a descriptor
/// that fails its check is left out here: all are read and checked again once the volume is claimed
/// and its log replayed.
///
/// # Errors
/// [`Error::Corrupt`] if the block belongs to a structure; a failed read.
fn check_protection_block(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let Some(block) = superblock.mmp_block()? else { return Ok(()) };
    let layout = Layout::new(superblock);
    let mut bytes = AlignedBuf::zeroed(superblock.block_size() as usize);
    for index in 0..superblock.gdt_blocks() {
        let offset = layout.offset(superblock.gdt_block(index));
        device
            .read_at(offset, &mut [IoSliceMut::new(&mut bytes)])
            .map_err(|e| Error::device("reading the group descriptors", e))?;
        let first = index * superblock.descs_per_block();
        let raws =
            bytes.chunks_exact(superblock.desc_size().into()).take(superblock.descs_per_block() as usize);
        for (group, raw) in (first..superblock.group_count()).map(GroupNo).zip(raws) {
            if let Ok(desc) = GroupDesc::parse(raw, superblock, group) {
                layout.check_apart(superblock, group, &desc, block)?;
            }
        }
    }
    Ok(())
}

/// Returns why the volume must not be written; `None` if it may be.
fn read_only_reason(device: &dyn Device, options: &VolumeOptions, access: Access) -> Result<Option<String>> {
    if options.read_only {
        return Ok(Some("it was opened so".into()));
    }
    if device.read_only() {
        return Err(Error::ReadOnly("its device cannot be written; open it read-only".into()));
    }
    match access {
        Access::ReadWrite => Ok(None),
        Access::ReadOnly { because } => {
            let features = because.join(", ");
            Err(Error::ReadOnly(format!("feature {features} can be read but not written; open it read-only")))
        }
    }
}

/// Builds an engine over a volume in memory, to compute what fast commits change. It does not write
/// to the journal.
pub(super) fn build_scratch(
    device: Arc<dyn Device>,
    superblock: Superblock,
    journal: &JournalPlace,
    target: ReplayTarget,
) -> Result<EngineRef> {
    let journal = JournalPlace { is_written: false, ..journal.clone() };
    let options = VolumeOptions::new().cache_bytes(1 << 20);
    let parts = Parts {
        device,
        superblock,
        journal: Some(journal),
        read_only: None,
        protection: None,
        live: None,
        written: Arc::default(),
        needs_quotas: target == ReplayTarget::Device,
    };
    Ok(EngineRef::new(&build(parts, &options)?))
}

/// What an engine is built from.
struct Parts {
    device: Arc<dyn Device>,
    superblock: Superblock,
    journal: Option<JournalPlace>,
    read_only: Option<String>,
    protection: Option<Protection>,
    live: Option<MmpState>,
    written: Arc<WriteCount>,
    /// True if a damaged quota file forbids changes. Changes in memory that are only read may leave
    /// quota files as they are.
    needs_quotas: bool,
}

fn build(parts: Parts, options: &VolumeOptions) -> Result<Arc<Engine>> {
    let Parts { device, superblock, journal, read_only, protection, live, written, needs_quotas } = parts;
    let mut layout = Layout::new(&superblock);
    let budget = Budget::new(options.metadata_cache_bytes as u64);
    let cache = MetaCache::new(Arc::clone(&device), layout.block_size.bytes(), layout.blocks_count, &budget);
    let cache = Arc::new(cache);
    let superblock = Arc::new(superblock);
    let (desc_blocks, mut descs) = read_descriptors(&cache, &superblock, &layout, read_only.is_some())?;
    let log = journal.iter().filter(|journal| !journal.map.external).flat_map(|journal| &journal.map.extents);
    layout.set_system_zone(&superblock, &descs, log.map(|extent| (extent.physical, extent.len)))?;
    if read_only.is_none() {
        count_unwritten(&superblock, &layout, &mut descs);
    }
    let layout = Arc::new(layout);

    let counts = open_counts(&cache, &superblock, &descs, read_only.is_some())?;
    let allocator = Arc::new(Allocator::new(
        Arc::clone(&layout),
        Arc::clone(&cache),
        &superblock,
        &desc_blocks,
        descs,
        counts,
        AllocationOptions {
            serialize_from: options.research.serialize_allocation_from,
            fill_completely: options.fill_completely,
        },
    ));
    let lazy = Arc::new(LazyTimes::new());
    let health = Arc::new(Health::new(superblock.error_count(), options.clock));
    if let Some(protection) = &protection {
        protection.attach(&health);
    }
    let deletions = Deletions::new(options.delete_in_background);
    let hooks = Hooks {
        allocator: Arc::clone(&allocator),
        lazy: Arc::clone(&lazy),
        health: Arc::clone(&health),
        deletions: deletions.clone(),
    };
    let first_tid = journal.as_ref().map_or(1, |journal| u64::from(journal.next_sequence).max(1));
    let log = journal.filter(|journal| read_only.is_none() && journal.is_written);
    let log = log.map(|journal| (journal.map, journal.superblock, options.clock));
    let log_map = log.as_ref().map(|(map, ..)| map.clone());
    let recorder = Arc::new(ErrorRecorder::new(&device, &health, log_map));
    let journal = Journal::new(
        Arc::clone(&device),
        Arc::clone(&cache),
        Arc::clone(&health),
        layout.block_size.bytes(),
        log,
        first_tid,
        Box::new(hooks),
    )?;
    let has_quotas = superblock.ro_compat().contains(RoCompat::QUOTA);
    let journal = journal.with_spare(if has_quotas { QUOTA_CREDITS } else { 0 });
    let pages = PageCache::new(options.cache_bytes, PageSize::of(layout.block_size));
    let journal = Arc::new(journal);
    let inodes = Arc::new(InodeCache::new(&budget, &journal));
    budget.share(vec![
        Arc::downgrade(&inodes) as Weak<dyn Evict>,
        Arc::downgrade(&cache) as Weak<dyn Evict>,
        Arc::downgrade(&allocator) as Weak<dyn Evict>,
    ]);
    let limits = Limits {
        cache: options.cache_bytes,
        dirty: options.dirty_limit_bytes,
        interval: options.write_back_interval,
    };
    // The start differs from open to open, so that an inode that reuses a number gets another
    // generation.
    let generation = options.clock.now().nanoseconds ^ superblock.raw().s_mtime.get();
    let parts = EngineParts {
        dirty: DirtyFiles::new(&limits, &pages, &device),
        device,
        deletions,
        layout,
        superblock,
        health,
        cache,
        journal,
        allocator,
        inodes,
        read_only,
        lazy,
        pages,
        idle_cache: IdleCache::new(options.cache_idle),
        split_at: options.research.split_at,
        policy: options.research.policy,
        clock: options.clock,
        usage: VolumeUsage::new(options.explain),
        protection,
        live,
        written,
        recorder,
    };
    let mut engine = Engine::new(parts, generation);
    if !engine.is_read_only() {
        read_quotas(&mut engine, options, needs_quotas)?;
    }
    engine.inode(InodeNo::ROOT)?;
    Ok(Arc::new(engine))
}

/// Reads the quota files. With `needs_quotas`, a damaged one forbids changes.
fn read_quotas(engine: &mut Engine, options: &VolumeOptions, needs_quotas: bool) -> Result<()> {
    let quotas = match engine.read_quotas(options.enforced_quotas) {
        Err(Error::Corrupt(_)) if !needs_quotas => None,
        Err(error @ Error::Corrupt(_)) => {
            let why = format!("{error}; it can be opened read-only; run e2fsck on the image");
            return Err(Error::ReadOnly(why));
        }
        read => read?,
    };
    engine.set_quotas(quotas);
    Ok(())
}

/// Reads the superblock's block into the cache, and sets its counters to the sums over the groups.
/// The counters on the device are stale after a crash: the kernel does not journal them, and sums
/// up at mount (`ext4_count_free_clusters`).
fn open_counts(
    cache: &MetaCache,
    superblock: &Superblock,
    descs: &[GroupDesc],
    read_only: bool,
) -> Result<Arc<SuperCounts>> {
    let clusters: u64 = descs.iter().map(|desc| u64::from(desc.free_blocks)).sum();
    let cluster_blocks = u64::from(superblock.blocks_per_group() / superblock.clusters_per_group());
    let mut blocks = clusters.saturating_mul(cluster_blocks);
    if read_only {
        blocks = blocks.min(superblock.blocks_count());
    }
    if blocks > superblock.blocks_count() {
        let problem = format_args!("{blocks} blocks in all groups");
        return Err(Error::corrupt_field("group descriptors", "bg_free_blocks_count", problem));
    }
    // No group has more free inodes than inodes, and the sum of the inodes of all groups fits.
    let inodes = descs.iter().map(|desc| desc.free_inodes).fold(0, u32::saturating_add);
    let mut superblock = superblock.clone();
    superblock.set_free_blocks(blocks);
    superblock.set_free_inodes(inodes);
    let block_size = u64::from(superblock.block_size());
    let number = FsBlock(Superblock::OFFSET / block_size);
    let offset = usize::try_from(Superblock::OFFSET % block_size).unwrap_or(0);
    let block = cache.read(number, BlockKind::Superblock(offset))?;
    Ok(Arc::new(SuperCounts::new(block, offset, superblock)))
}

impl Engine {
    fn start_timer(&self, interval: Duration) -> Result<CommitTimer> {
        let (journal, recorder) = (Arc::clone(self.journal()), Arc::clone(self.recorder()));
        CommitTimer::start(self.health().commit_timer(), journal, recorder, interval)
    }

    /// Records on the device that the volume is in use, before any other change.
    fn mark_open(&self, journaled: bool) -> Result<()> {
        self.write_superblock(|superblock| {
            if journaled {
                superblock.set_incompat(superblock.incompat() | Incompat::RECOVER);
            } else {
                superblock.set_state(superblock.state() & !STATE_VALID);
            }
            if superblock.compat().contains(Compat::ORPHAN_FILE) {
                superblock.set_ro_compat(superblock.ro_compat() | RoCompat::ORPHAN_PRESENT);
            }
            if superblock.compat().contains(Compat::DIR_INDEX) {
                superblock.fix_hash_sign();
            }
            superblock.note_mount(self.clock().now().seconds);
        })
    }

    /// Writes a change of the superblock to the device and flushes it, outside any transaction.
    /// Only for opening and closing.
    pub(super) fn write_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let (before, written) = (self.superblock().kbytes_written(), self.written().bytes());
        let block = self.counts().change_directly(|superblock| {
            change(superblock);
            superblock.note_write(self.clock().now().seconds, before, written);
        });
        let bytes = block.freeze();
        self.device()
            .write_at(self.layout().offset(block.number()), &[IoSlice::new(&bytes)])
            .map_err(|e| self.health().stop(Error::device("writing the superblock", e)))?;
        self.journal().flush()
    }
}

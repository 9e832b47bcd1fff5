//! `mkfs`: makes an empty volume, or a journal on a device of its own.

pub mod keywords;
mod report;
mod target;

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use parext4::mkfs::{ExternalJournal, FsType, OnError, Summary, mkfs_journal_device, plan};
use parext4::{Device, DeviceOptions, MkfsOptions};
use parext4_storage::open_device;

use crate::activity::{Activity, Moved};
use crate::{image, output, size, source_date};
use keywords::{Extended, Id, JournalWords};
use target::Part;

/// Make an ext2, ext3 or ext4 volume in an image file, on a block device or on a device of the
/// network
///
/// The options are the options of mke2fs, and have the same effects. The root directory belongs to
/// the user and the group that run the command, so that a user can write to the volume when it is
/// mounted; -E root_owner=0:0 gives it to root, and so does SOURCE_DATE_EPOCH in the environment,
/// with which every user makes the same volume.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image file, created if it does not exist, or a block device or URL
    image: PathBuf,
    /// Size of the volume in blocks, or in KiB without --block-size, unless it has a unit
    #[arg(value_name = "SIZE", conflicts_with = "size")]
    fs_size: Option<String>,
    /// Size such as 512M or 4G; by default that of the existing file or device
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
    /// Type, which sets the features: ext2 (no journal, no extents), ext3 (a journal, no extents)
    /// or ext4
    #[arg(long = "type", short = 't', value_name = "TYPE", default_value = "ext4")]
    fs_type: FsType,
    /// Usage type, which sets the block size and the inode ratio: floppy, small, default, big,
    /// huge, news, largefile, largefile4; by default as the size of the device suggests
    #[arg(long = "usage-type", short = 'T', value_name = "LIST", value_parser = usage)]
    usage: Option<String>,
    /// Bytes of a block: a power of two from 1024 to 65536
    #[arg(long, short, value_parser = size::parse)]
    block_size: Option<u64>,
    /// Bytes of a cluster, the unit of allocation, with -O bigalloc: a power of two from the block
    /// size to 16384 blocks; 16 blocks by default
    #[arg(long, short = 'C', value_name = "BYTES", value_parser = size::parse)]
    cluster_size: Option<u64>,
    /// Name of the volume, at most 16 bytes
    #[arg(long, short = 'L', default_value = "")]
    label: String,
    /// UUID of the volume, clear or random; random by default
    #[arg(long, short = 'U', value_parser = keywords::id)]
    uuid: Option<Id>,
    /// Bytes of the volume for each inode
    #[arg(long, short, value_parser = size::parse)]
    inode_ratio: Option<u64>,
    /// Number of inodes, rounded up to what fills the inode tables; 0 for the default
    #[arg(long, short = 'N', value_name = "COUNT", conflicts_with = "inode_ratio")]
    inodes: Option<u32>,
    /// Bytes of an inode: a power of two from 128 to the block size. Inodes of 128 bytes have no
    /// times after 2038 and no fractions of seconds
    #[arg(long, short = 'I', value_name = "BYTES", default_value_t = 256)]
    inode_size: u16,
    /// Blocks, or clusters, of a group, a multiple of 8; by default as many as one block of bits
    /// describes
    #[arg(long, short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together, a power of two; 16 by default
    #[arg(long, short = 'G', value_name = "GROUPS")]
    flex_groups: Option<u32>,
    /// Percentage of the blocks that only root may use, at most 50
    #[arg(long, short = 'm', value_name = "PERCENT", default_value_t = 5.0)]
    reserved_percent: f64,
    /// Revision of the format: 1, or 0, which old programs read and which has no features
    #[arg(long, short, default_value_t = 1)]
    revision: u32,
    /// Make no journal: a crash may then leave an inconsistent volume
    #[arg(long)]
    no_journal: bool,
    /// Make a journal, also with -t ext2
    #[arg(short = 'j', conflicts_with = "no_journal")]
    with_journal: bool,
    /// Options of the journal, separated by commas: size=MIB; location=BLOCK; fast_commit_size=KIB,
    /// for -O fast_commit; device=DEVICE, a journal that mkfs -O journal_dev has made
    #[arg(short = 'J', value_name = "OPTIONS", value_parser = keywords::journal, conflicts_with = "no_journal")]
    journal_words: Option<JournalWords>,
    /// Features to add to the ones of the type, or with ^ to leave out, separated by commas; none
    /// leaves out all. mmp, with which one machine at a time can open the volume for writing, is on
    /// by default on devices of a network. journal_dev makes a journal for a volume on another
    /// device
    #[arg(short = 'O', long, value_name = "LIST", value_parser = features)]
    features: Vec<String>,
    /// Extended options, separated by commas: mmp_update_interval=SECONDS, the time between two
    /// signs of life of the machine that uses a volume with mmp, 1 to 300; hash_seed=UUID, the
    /// secret of the directory hashes; encoding=utf8 for casefold, which it adds;
    /// encoding_flags=strict to refuse names that are not UTF-8 in directories that ignore case;
    /// stride=BLOCKS and stripe_width=BLOCKS of a RAID; num_backup_sb=0, 1 or 2 for sparse_super2;
    /// packed_meta_blocks to have all tables and the journal at the start; resize=BLOCKS, up to
    /// which the volume can be extended while it is mounted; lazy_itable_init=0 to zero the inode
    /// tables; lazy_journal_init to leave the journal as it is, without zeroing it; discard to
    /// discard the old contents, which nodiscard, the default, does not; root_owner=UID:GID of the
    /// root directory, by default of the user who runs the command, and its root_perms=MODE;
    /// orphan_file_size=BLOCKS for orphan_file; quotatype=usrquota:grpquota:prjquota, what the
    /// feature quota counts by; offset=BYTES of the volume in the file; test_fs, the flag of
    /// volumes for tests of drivers in development
    #[arg(short = 'E', value_name = "OPTIONS", value_parser = keywords::extended)]
    extended: Option<Extended>,
    /// Reaction of the kernel to an error in the volume: continue, remount-ro or panic
    #[arg(long = "errors", short = 'e', value_name = "BEHAVIOUR", default_value = "continue", value_parser = keywords::on_error)]
    on_error: OnError,
    /// Directory on which the volume counts as last mounted
    #[arg(long, short = 'M', value_name = "DIR", default_value = "")]
    last_mounted: String,
    /// Overwrite a file system, a partition table or another volume that the device holds. A device
    /// that is in use is never overwritten
    #[arg(long, short = 'F')]
    force: bool,
    /// Print what would be made, and write nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Print nothing
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Print the summary as JSON, with the fields that parext4-json(5) lists
    #[arg(long)]
    json: bool,
}

/// The feature of a device that is only a journal.
const JOURNAL_DEVICE: &str = "journal_dev";

/// Checks a list of features.
fn features(list: &str) -> Result<String> {
    if list != JOURNAL_DEVICE {
        MkfsOptions::new().features(list)?;
    }
    Ok(list.to_owned())
}

/// Checks a list of uses.
fn usage(list: &str) -> Result<String> {
    MkfsOptions::new().usage(list)?;
    Ok(list.to_owned())
}

impl Args {
    /// Returns the options that do not depend on the block size.
    fn options(&self) -> Result<MkfsOptions> {
        let source_date = source_date::get()?;
        let block_size = self.block_size.map(u32::try_from).transpose().context("--block-size")?;
        let cluster_size = self.cluster_size.map(u32::try_from).transpose().context("--cluster-size")?;
        let mut options = MkfsOptions::new()
            .fs_type(self.fs_type)
            .block_size(block_size)
            .cluster_size(cluster_size)
            .label(&self.label)
            .uuid(self.uuid.and_then(|id| Some(id.0?.into_bytes())))
            .inode_ratio(self.inode_ratio)
            .inodes(self.inodes.filter(|&inodes| inodes > 0))
            .inode_size(self.inode_size)
            .blocks_per_group(self.blocks_per_group)
            .flex_groups(self.flex_groups)
            .reserved_percent(self.reserved_percent)
            .revision(self.revision)
            .on_error(self.on_error)
            .last_mounted(&self.last_mounted)
            .now(source_date);
        if source_date.is_none() {
            let (uid, gid) = keywords::own_ids();
            options = options.owner(uid, gid);
        }
        if let Some(list) = &self.usage {
            options = options.usage(list)?;
        }
        for list in &self.features {
            options = options.features(list).context("-O")?;
        }
        options.journal |= self.with_journal || self.journal_words.is_some();
        options.journal &= !self.no_journal;
        match &self.extended {
            Some(extended) => extended.apply(options),
            None => Ok(options),
        }
    }

    /// Adds the options that are in blocks, or depend on other devices.
    fn in_blocks(&self, mut options: MkfsOptions, device_size: u64) -> Result<MkfsOptions> {
        let words = self.journal_words.clone().unwrap_or_default();
        if let Some(device) = words.device.as_deref().or(image::journal()) {
            options = options.external_journal(external_journal(device, self.dry_run)?);
        }
        let block_size = options.block_size_on(device_size)?;
        let blocks = |bytes: u64| u32::try_from(bytes / u64::from(block_size)).unwrap_or(u32::MAX);
        let extended = self.extended.clone().unwrap_or_default();
        let orphan_file = extended.orphan_file_size.map(|size| size.in_blocks(block_size));
        Ok(options
            .journal_blocks(words.size.map(|mib| blocks(mib.saturating_mul(1 << 20))))
            .fast_commit_blocks(words.fast_commit_size.map(|kib| blocks(kib.saturating_mul(1 << 10))))
            .journal_start(words.location.map(|location| location.in_blocks(block_size)))
            .orphan_file_blocks(orphan_file.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX)))
            .max_blocks(extended.resize.map(|size| size.in_blocks(block_size))))
    }

    fn part(&self) -> Result<Part> {
        let size = self.fs_size.as_deref().map(|text| keywords::volume_size(text, self.block_size));
        let size = size.transpose().context("SIZE")?.or(self.size);
        Ok(Part { offset: self.extended.as_ref().map_or(0, |extended| extended.offset), size })
    }

    fn print(&self, summary: &Summary) -> Result<()> {
        match (self.json, self.quiet) {
            (true, _) => report::print_json(&self.image, summary),
            (false, true) => Ok(()),
            (false, false) => output::print(|out| report::print(out, &self.image, summary)),
        }
    }
}

/// Makes the volume in memory, for the fuzzer: of `MOST` bytes at most. `None` if the journal is on
/// another device, or a plan of the volume would need much memory.
#[cfg(any(test, fuzzing))]
pub fn make_in_memory(args: &Args) -> Result<Option<parext4::MemDevice>> {
    const MOST: u64 = 64 << 20;
    const MOST_PLANNED: u64 = 1 << 38;
    const DEFAULT: u64 = 16 << 20;
    if args.journal_words.as_ref().is_some_and(|words| words.device.is_some()) {
        return Ok(None);
    }
    let (options, size) = (args.options()?, args.part()?.size.unwrap_or(DEFAULT));
    if size > MOST_PLANNED {
        return Ok(None);
    }
    plan(size, &args.in_blocks(options.clone(), size)?)?;
    let device = parext4::MemDevice::new(size.min(MOST));
    make(&device, args, options.device_is_zero(true), false)?;
    Ok(Some(device))
}

/// Opens a journal for the new volume.
fn external_journal(device: &Path, read_only: bool) -> Result<ExternalJournal> {
    let open = open_device(device, &DeviceOptions::new().read_only(read_only))?;
    let metadata = device.metadata().ok().filter(|metadata| metadata.file_type().is_block_device());
    // The superblock has 32 bits for it, in the same order.
    let number = metadata.map_or(0, |metadata| metadata.rdev() as u32);
    Ok(ExternalJournal { device: open, number })
}

/// Runs the command.
pub fn run(mut args: Args) -> Result<()> {
    let is_journal = args.features.iter().any(|list| list == JOURNAL_DEVICE);
    ensure!(!is_journal || args.features.len() == 1, "-O {JOURNAL_DEVICE} excludes other features");
    if is_journal {
        args.features.clear();
    }
    let options = args.options()?;
    let part = args.part()?;
    if args.dry_run {
        ensure!(!is_journal, "-n shows volumes, and no journal devices");
        let (size, is_shared) = target::size(&args.image, part)?;
        let mut options = args.in_blocks(options, size)?;
        options.mmp = options.mmp.or(Some(is_shared));
        return args.print(&plan(size, &options).with_context(|| args.image.display().to_string())?);
    }
    if let Some(size) = part.size.filter(|_| !is_journal) {
        // Before the file gets this size, which discards its contents.
        let options = args.in_blocks(options.clone(), size)?;
        plan(size, &options).with_context(|| args.image.display().to_string())?;
    }
    let created = !target::exists(&args.image)?;
    let (device, is_zero) = target::open(&args.image, part, args.force)?;
    let options = options.device_is_zero(is_zero);
    match make(&*device, &args, options, is_journal) {
        Ok(summary) => args.print(&summary),
        Err(error) => {
            if created {
                let _ = std::fs::remove_file(&args.image);
            }
            Err(error)
        }
    }
}

fn make(device: &dyn Device, args: &Args, options: MkfsOptions, is_journal: bool) -> Result<Summary> {
    let name = || args.image.display().to_string();
    let moved = Moved::default();
    let (shown, device) = (moved.clone(), &moved.counts(device));
    let _activity = Activity::start(args.quiet, "making the volume", move || shown.written());
    if is_journal {
        return mkfs_journal_device(device, &options).with_context(name);
    }
    let options = args.in_blocks(options, device.size())?;
    parext4::mkfs(device, &options).with_context(name)
}

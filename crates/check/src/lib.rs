//! Checks an ext4 volume without changing it: every checksum and every reference, as `e2fsck -fn`
//! does.
//!
//! [`check`] reads the volume on several threads, in six steps that correspond to the passes of
//! e2fsck:
//!
//! 1. the superblock, its backups, the descriptors, and the lists of orphans;
//! 2. all inodes: fields, attributes, the map of blocks, which each inode claims (pass 1). If
//!    blocks are claimed twice, a second walk names their owners;
//! 3. all directories: blocks, entries, index trees (pass 2);
//! 4. parents of directories, and link counts (passes 3 and 4);
//! 5. bitmaps and counts (pass 5);
//! 6. the usage in quota files, which step 2 has counted.
//!
//! Memory: two bits for each block of the groups in use, 8 to 12 bytes for each inode, 50 bytes for
//! each directory, 50 to 100 bytes for each value of an attribute that has an inode, and 25 to 50
//! bytes for each user, group and project, of which at most 8,388,608 are counted. The check ends
//! whatever the bytes on the device are: a block of a directory is read for the first inode that
//! claims it, and an inode table for the first group that has it. A block of a map is read for each
//! inode that claims it, but not more than 1024 times in all for inodes after the first. Memory
//! does not follow from the superblock alone: the check stops when more than 65,536 descriptors are
//! unusable.
//!
//! The crate reads what is on the device. The caller replays the journal first, for example in
//! memory.
//!
//! ```no_run
//! use parext4_check::{CheckOptions, check};
//! use parext4_device::{DeviceOptions, FileDevice};
//!
//! let device = FileDevice::open("disk.img", &DeviceOptions::new().read_only(true))?;
//! for finding in check(&device, &CheckOptions::new()).findings {
//!     println!("{finding}");
//! }
//! # std::io::Result::Ok(())
//! ```
#![forbid(unsafe_code)]

mod bitmaps;
mod claims;
mod contents;
mod dirs;
mod entries;
mod finding;
mod flags;
mod found;
mod groups;
mod index;
mod inode;
mod inodes;
mod journal;
mod map;
mod mapper;
mod mmp;
mod names;
mod owners;
mod problem;
mod quotas;
mod reserved;
mod resize;
mod scan;
mod special;
mod symlinks;
mod tree;
mod usage;
mod values;
mod verity;
mod volume;
mod work;
mod xattrs;

use std::io::IoSliceMut;

use parext4_device::{AlignedBuf, Device};
use parext4_format::FormatError;
use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::superblock::{STATE_ERROR, STATE_VALID, Superblock};

pub use finding::Finding;
pub use problem::Problem;

use finding::Findings;
use problem::{PR_0_FS_SIZE_WRONG, PR_0_SB_CORRUPT};
use volume::Volume;

/// Options of a check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Number of threads. Threads wait for the device most of the time, so use more threads than
    /// cores.
    pub threads: usize,
    /// The largest number of findings that are returned. Further findings are counted.
    pub limit: usize,
    /// True if the device has the contents of the volume after the replay of its journal.
    pub is_replayed: bool,
}

impl Default for CheckOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads: (cores * 4).min(32), limit: 10_000, is_replayed: false }
    }
}

impl CheckOptions {
    /// Returns the defaults: four threads for each core, and at most 10,000 findings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`threads`](field@Self::threads).
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets [`limit`](field@Self::limit).
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets [`is_replayed`](field@Self::is_replayed).
    #[must_use]
    pub fn is_replayed(mut self, is_replayed: bool) -> Self {
        self.is_replayed = is_replayed;
        self
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The findings, in the order of e2fsck's passes.
    pub findings: Vec<Finding>,
    /// The number of findings, including findings above the limit.
    pub count: u64,
    /// Parts that were not checked, and states that are not errors on a volume that was not closed.
    pub notes: Vec<String>,
    /// The number of inodes in use.
    pub inodes: u64,
    /// The number of directories.
    pub directories: u64,
    /// The number of blocks in use.
    pub blocks: u64,
    /// Why nothing was checked: the device has no volume, or the volume has a feature or a format
    /// that this crate does not know.
    pub refused: Option<String>,
    /// The size of the volume in bytes, if the device is shorter. Then nothing else was checked.
    pub needed: Option<u64>,
}

/// `ro_compat` features that no kernel has had, or that change structures.
const UNKNOWN_RO_COMPAT: RoCompat = RoCompat::from_bits_retain(!RoCompat::all().bits())
    .union(RoCompat::HAS_SNAPSHOT)
    .union(RoCompat::REPLICA);

/// Compatible features without a name.
const UNKNOWN_COMPAT: Compat = Compat::from_bits_retain(!Compat::all().bits());

/// Checks the volume on `device`. Blocks of the device that cannot be read are findings.
#[must_use]
pub fn check(device: &dyn Device, options: &CheckOptions) -> Report {
    let findings = Findings::new(options.limit);
    let mut report = Report::default();
    match superblock(device) {
        Ok(sb) => passes(Volume::new(device, sb, &findings), options, &mut report),
        Err(Unusable::Unknown(error)) => report.refused = Some(error.to_string()),
        Err(Unusable::Wrong(error, problem)) => findings.add(error, problem),
        Err(Unusable::Truncated(needed)) => {
            let size = device.size();
            let problem = format_args!(
                "the volume is {needed} bytes long, its device only {size}: the last {} bytes are missing",
                needed - size
            );
            findings.add(FormatError::new("superblock", "s_blocks_count", problem), PR_0_FS_SIZE_WRONG);
            report.needed = Some(needed);
        }
    }
    let (findings, count, notes) = findings.finish();
    Report { findings, count, notes, ..report }
}

/// A superblock that does not lead to the rest of the volume.
enum Unusable {
    Wrong(FormatError, Problem),
    /// The device has no superblock, or a superblock that may be valid but that this crate does not
    /// know.
    Unknown(FormatError),
    /// The device is shorter than the volume, which has this number of bytes.
    Truncated(u64),
}

/// Reads the superblock, and makes sure that the geometry fits the device.
fn superblock(device: &dyn Device) -> Result<Superblock, Unusable> {
    let fail = |field, problem: String, kind| {
        Err(Unusable::Wrong(FormatError::new("superblock", field, problem), kind))
    };
    let unknown = |field, names: Vec<String>| {
        let problem = format_args!("feature not known: {}", names.join(", "));
        Err(Unusable::Unknown(FormatError::new("superblock", field, problem)))
    };
    let mut buf = AlignedBuf::zeroed(4096);
    let read = if device.size() < buf.len() as u64 {
        Err(format!("the device has {} bytes", device.size()))
    } else {
        device.read_at(0, &mut [IoSliceMut::new(&mut buf)]).map_err(|error| error.to_string())
    };
    if let Err(error) = read {
        return Err(Unusable::Unknown(FormatError::new("superblock", "size", error)));
    }
    let sb = Superblock::parse(&buf[1024..2048]).map_err(|error| match error.field {
        // These fields mean that there is no volume, or an unknown revision, or blocks of more than
        // 64 KiB.
        "s_magic" | "s_rev_level" | "s_log_block_size" => Unusable::Unknown(error),
        _ => Unusable::Wrong(error, PR_0_SB_CORRUPT),
    })?;
    let incompat = sb.incompat().difference(Incompat::SUPPORTED);
    if !incompat.is_empty() {
        return unknown("s_feature_incompat", incompat.names());
    }
    let ro_compat = sb.ro_compat().intersection(UNKNOWN_RO_COMPAT);
    if !ro_compat.is_empty() {
        return unknown("s_feature_ro_compat", ro_compat.names());
    }
    let compat = sb.compat().intersection(UNKNOWN_COMPAT);
    if !compat.is_empty() {
        return unknown("s_feature_compat", compat.names());
    }
    let clusters = sb.raw().s_clusters_per_group.get();
    if clusters != sb.clusters_per_group() {
        let problem = format!("{clusters}, but {} without bigalloc", sb.clusters_per_group());
        return fail("s_clusters_per_group", problem, PR_0_SB_CORRUPT);
    }
    let needed = sb.blocks_count().saturating_mul(sb.block_size().into());
    if device.size() < needed {
        return Err(Unusable::Truncated(needed));
    }
    if device.sector_size() > sb.block_size() {
        let problem = format!("{} is below the sectors of the device", sb.block_size());
        return fail("s_log_block_size", problem, PR_0_SB_CORRUPT);
    }
    Ok(sb)
}

fn passes(mut volume: Volume<'_>, options: &CheckOptions, report: &mut Report) {
    let threads = options.threads;
    notes(&volume, options.is_replayed);
    if !groups::check(&mut volume) {
        return;
    }
    groups::check_backups(&volume);
    mmp::check(&volume);
    quotas::check_numbers(&volume);
    volume.orphans = journal::orphans(&volume);

    let mut found = inodes::check(&volume, threads);
    journal::refugees(&volume, &found);
    journal::check(&volume, &found);
    owners::check(&volume, threads);
    report.directories = (found.dirs.len() + found.inline_dirs.len()) as u64;

    let dirs = dirs::check(&volume, threads, &mut found);
    tree::check_parents(&volume, &dirs);
    tree::check_links(&volume, threads);
    let was_closed = volume.sb.state() & STATE_VALID != 0 && !volume.has(Incompat::RECOVER);
    bitmaps::check(&volume, threads, was_closed);
    quotas::check(&volume);

    let groups = 0..volume.sb.group_count();
    let in_use = |group| volume.inodes_of(group).iter().filter(|state| state.kind != 0).count() as u64;
    report.inodes = groups.clone().map(in_use).sum();
    let ratio = u64::from(volume.sb.blocks_per_group() / volume.sb.clusters_per_group());
    report.blocks = groups.map(|group| u64::from(volume.claims.count(group)) * ratio).sum();
}

/// Notes the features whose contents are not checked, and the state of the volume.
fn notes(volume: &Volume<'_>, is_replayed: bool) {
    let sb = &volume.sb;
    let ignored = [
        (sb.ro_compat().contains(RoCompat::VERITY), "verity: contents are not verified against their hashes"),
        (sb.ro_compat().contains(RoCompat::SHARED_BLOCKS), "shared_blocks: files may share blocks"),
        (sb.compat().contains(Compat::FAST_COMMIT), "fast_commit: fast commits are not replayed"),
        (volume.has(Incompat::EA_INODE), "ea_inode: contents of values in inodes are not verified"),
        (volume.has(Incompat::CASEFOLD), "casefold: hashes in directories without case are not checked"),
        (volume.has(Incompat::ENCRYPT), "encrypt: encrypted contents are not checked"),
    ];
    for (_, note) in ignored.iter().filter(|(is_set, _)| *is_set) {
        volume.findings.note(format!("feature {note}"));
    }
    if sb.state() & STATE_ERROR != 0 {
        volume.findings.note("the superblock has errors on record");
    }
    if volume.has(Incompat::RECOVER) && !is_replayed {
        volume.findings.note("the journal is not replayed, so newer changes are missing");
    } else if sb.state() & STATE_VALID == 0 && !is_replayed {
        volume.findings.note("the volume was not closed");
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

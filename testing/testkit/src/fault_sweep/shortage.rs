//! Volumes that have a certain number of blocks or inodes left, for workloads that run out of them.

use std::ops::Range;
use std::process::Command;
use std::sync::Arc;

use parext4::{DirectFile, Error, FileSize, MemDevice, NewInode, QuotaKind, QuotaLimits, Volume};

use super::devices::Devices;
use super::snapshot::OWN;
use crate::tool::{self, tool};
use crate::volume::DirectFiles as _;

/// What a volume runs out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Free blocks.
    Blocks,
    /// Free inodes.
    Inodes,
    /// Blocks within the hard limit of root, whose limits count in these runs.
    QuotaBlocks,
    /// Inodes within the hard limit of root.
    QuotaInodes,
}

/// The user who owns the files of workloads.
const ROOT: u32 = 0;
/// Number of files that can use up a block, besides one for each block that is kept for metadata.
const SPARE: u64 = 4;
/// Unwritten blocks of a file that can use up a block.
const UNWRITTEN: u64 = 12;

impl Resource {
    /// Returns true if a quota limits it.
    pub fn is_of_quota(self) -> bool {
        matches!(self, Self::QuotaBlocks | Self::QuotaInodes)
    }

    /// Returns true if `error` says that it has run out.
    pub fn is_reported_by(self, error: &Error) -> bool {
        match self {
            Self::Blocks => matches!(error, Error::NoSpace),
            Self::Inodes => matches!(error, Error::NoInodes),
            Self::QuotaBlocks | Self::QuotaInodes => matches!(error, Error::QuotaExceeded(_)),
        }
    }

    /// Returns a copy of the volume of which [`leave`](Self::leave) leaves a number.
    ///
    /// # Errors
    /// Why there is none.
    pub fn prepare(self, base: &Devices) -> Result<Devices, String> {
        let devices = base.fork();
        match self {
            Self::Blocks => with_volume(&devices, fill),
            Self::Inodes => with_volume(&devices, use_inodes),
            Self::QuotaBlocks | Self::QuotaInodes => return with_quotas(devices),
        }
        Ok(devices)
    }

    /// Returns the numbers with which a workload that needs `needed` may fail.
    pub fn numbers(self, prepared: &Devices, needed: u64) -> Range<u64> {
        let mut numbers = 0..needed;
        if self == Self::Blocks {
            with_volume(&prepared.fork(), |volume| {
                let kept = volume.space().free_blocks;
                numbers = if volume.exists(absorber(0))? { 0 } else { kept }..kept + needed;
                Ok(())
            });
        }
        numbers
    }

    /// Leaves `number` on a volume that [`prepare`](Self::prepare) has returned. Returns false if
    /// it cannot have as many.
    pub fn leave(self, devices: &Devices, number: u64) -> bool {
        let mut is_left = true;
        with_volume(devices, |volume| {
            is_left = match self {
                Self::Blocks => leave_blocks(volume, number)?,
                Self::Inodes => leave_inodes(volume, number)?,
                Self::QuotaBlocks | Self::QuotaInodes => self.limit(volume, number).map(|()| true)?,
            };
            Ok(())
        });
        is_left
    }

    /// Makes more of it available.
    ///
    /// # Errors
    /// The errors of the changes.
    pub fn refill(self, volume: &Volume) -> Result<(), Error> {
        match self {
            Self::Blocks => volume.remove_file(filler())?,
            Self::Inodes => volume.remove_file(inode(u32::MAX))?,
            Self::QuotaBlocks | Self::QuotaInodes => {
                volume.set_quota_limits(QuotaKind::User, ROOT, &QuotaLimits::default())?;
            }
        }
        volume.sync()
    }

    /// Sets the hard limit of root to what it uses and `number` more.
    fn limit(self, volume: &Volume, number: u64) -> Result<(), Error> {
        let quotas = volume.quotas(QuotaKind::User)?.expect("a volume with quotas");
        let used = quotas.iter().find(|quota| quota.id == ROOT).expect("an entry of root");
        let limits = match self {
            Self::QuotaBlocks => QuotaLimits {
                space_hard: used.space + number * u64::from(volume.space().block_size),
                ..used.limits
            },
            _ => QuotaLimits { inodes_hard: used.inodes + number, ..used.limits },
        };
        volume.set_quota_limits(QuotaKind::User, ROOT, &limits)
    }
}

/// Writes until no blocks for data are left.
///
/// The last blocks of a volume are kept for its metadata. Files of unwritten blocks can use them
/// up: such a file needs a block for its tree of extents when every other block is written. Volumes
/// without extents have no such files.
fn fill(volume: &Volume) -> Result<(), Error> {
    let space = volume.space();
    let block = u64::from(space.block_size);
    for number in 0..space.blocks / 50 + SPARE {
        let file = volume.create_direct(absorber(number))?;
        if let Err(Error::Unsupported(_)) = file.allocate(0..UNWRITTEN * block, FileSize::Extend) {
            volume.remove_file(absorber(number))?;
            break;
        }
    }
    let file = volume.create_direct(filler())?;
    let (mut at, mut data) = (0, vec![2; 1 << 20]);
    while data.len() as u64 >= block {
        match file.write_all_at(&data, at) {
            Ok(()) => at += data.len() as u64,
            Err(Error::NoSpace) => data.truncate(data.len() / 2),
            Err(error) => return Err(error),
        }
    }
    file.set_len(at)
}

/// Leaves `free` free blocks; on a volume without extents also the pointer blocks that a truncation
/// frees. Returns false if it cannot have as many.
fn leave_blocks(volume: &Volume, free: u64) -> Result<bool, Error> {
    let block = u64::from(volume.space().block_size);
    let now = || volume.space().free_blocks;
    let file = volume.direct_file(filler())?;
    while now() < free {
        let Some(len) = file.size().checked_sub((free - now()) * block) else { return Ok(false) };
        file.set_len(len)?;
    }
    for number in 0.. {
        if now() <= free || !volume.exists(absorber(number))? {
            break;
        }
        use_one_up(volume, &volume.direct_file(absorber(number))?, block, free)?;
    }
    Ok(true)
}

fn use_one_up(volume: &Volume, file: &DirectFile, block: u64, free: u64) -> Result<(), Error> {
    let data = vec![2; usize::try_from(block).expect("a block fits in memory")];
    let mut odd = (1..UNWRITTEN).step_by(2).take_while(|_| volume.space().free_blocks > free);
    odd.try_for_each(|odd| file.write_all_at(&data, odd * block))
}

/// Makes files until no inodes are left.
fn use_inodes(volume: &Volume) -> Result<(), Error> {
    let dir = volume.root()?.mkdir(&inodes().as_bytes()[1..], &NewInode::new())?;
    dir.create(u32::MAX.to_string().as_bytes(), &NewInode::new())?;
    for number in 0..volume.space().free_inodes {
        dir.create(number.to_string().as_bytes(), &NewInode::new())?;
    }
    assert_eq!(volume.space().free_inodes, 0, "inodes that could not be used up");
    Ok(())
}

/// Leaves `free` free inodes. Returns false if it cannot have as many.
fn leave_inodes(volume: &Volume, free: u64) -> Result<bool, Error> {
    for number in 0..free {
        if !volume.exists(inode(number))? {
            return Ok(false);
        }
        volume.remove_file(inode(number))?;
    }
    assert_eq!(u64::from(volume.space().free_inodes), free, "free inodes");
    Ok(true)
}

/// Returns the volume with quotas of users, or why it has none.
fn with_quotas(mut devices: Devices) -> Result<Devices, String> {
    // tune2fs counts what the volume uses before it replays a journal.
    with_volume(&devices, |_| Ok(()));
    let file = tempfile::NamedTempFile::new().expect("a file");
    devices.volume.save(file.path()).expect("a file in which the volume fits");
    let mut command = Command::new("tune2fs");
    let output = tool(command.args(["-O", "quota"]).arg(file.path())).ok_or("tune2fs is not installed")?;
    if !output.status.success() {
        return Err(tool::text(&output));
    }
    let bytes = std::fs::read(file.path()).expect("the volume can be read");
    devices.volume = Arc::new(MemDevice::from_bytes(bytes));
    Ok(devices)
}

/// Makes changes of a volume.
fn with_volume(devices: &Devices, change: impl FnOnce(&Volume) -> Result<(), Error>) {
    let volume = devices.open().expect("the volume opens");
    change(&volume).unwrap_or_else(|error| panic!("preparing a volume: {error}"));
    volume.close().expect("the volume closes");
}

fn absorber(number: u64) -> String {
    format!("{OWN}-{number}")
}

fn filler() -> String {
    format!("{OWN}-filler")
}

fn inodes() -> String {
    format!("{OWN}-inodes")
}

fn inode(number: impl std::fmt::Display) -> String {
    format!("{}/{number}", inodes())
}

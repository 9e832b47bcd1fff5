//! Describes a volume: identity, features, space, and whether it can be changed.

use parext4_format::features;
use parext4_format::superblock::Superblock;

use super::{RecordedErrors, Volume};
use crate::error::{Error, Result};
use crate::findings::ErrorPlace;
use crate::mmp::{self, MmpState};

/// A description of a volume, from [`Volume::info`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The label, without the padding.
    pub label: String,
    /// The UUID.
    pub uuid: [u8; 16],
    /// `ext2`, `ext3` or `ext4`, by the features, as blkid(8) names it.
    pub type_name: &'static str,
    /// Size of a block, in bytes.
    pub block_size: u32,
    /// Size of an inode in the inode table, in bytes.
    pub inode_size: u16,
    /// Number of block groups.
    pub groups: u32,
    /// Names of the features, as e2fsprogs prints them.
    pub features: Vec<String>,
    /// True if the volume has a journal.
    pub journal: bool,
    /// Why the volume is read-only; `None` if it is not.
    pub read_only: Option<String>,
    /// The machine that had the volume open for writing when this read-only open was made. The
    /// journal was then not replayed.
    pub live: Option<MmpState>,
    /// Errors that the superblock records, until e2fsck repairs the volume.
    pub errors: Option<RecordedErrors>,
    /// Reaction to corruption that the superblock asks for.
    pub on_error: OnError,
    /// The user and the group that may use the reserved blocks as root may; 0 for root alone.
    pub reserved_for: (u32, u32),
    /// New files get the group of their directory, if a mount does not say otherwise.
    pub group_of_directory: bool,
    /// Used and free space.
    pub space: Space,
}

/// Reaction to corruption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// The operation that finds the corruption fails. Other operations continue.
    #[default]
    Continue,
    /// The volume refuses all further changes.
    ReadOnly,
}

/// Used and free space of a volume, from [`Volume::space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Size of a block, in bytes. The other fields count blocks and inodes.
    pub block_size: u32,
    /// Number of all blocks.
    pub blocks: u64,
    /// Number of blocks that hold neither data nor directories: tables, bitmaps, the journal.
    pub overhead_blocks: u64,
    /// Number of free blocks. Includes freed blocks that wait for a commit, and excludes blocks
    /// claimed for dirty pages.
    pub free_blocks: u64,
    /// Number of blocks that only root may use, see [`Credentials`](crate::Credentials).
    pub reserved_blocks: u64,
    /// Number of free blocks that users other than root may fill with data.
    pub available_blocks: u64,
    /// Number of all inodes.
    pub inodes: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
}

impl Info {
    /// Describes a volume by its superblock alone, as one that may be changed.
    pub(super) fn of(superblock: &Superblock) -> Self {
        Self {
            label: superblock.label(),
            uuid: superblock.uuid(),
            type_name: superblock.type_name(),
            block_size: superblock.block_size(),
            inode_size: superblock.inode_size(),
            groups: superblock.group_count(),
            features: superblock.feature_names(),
            journal: superblock.compat().contains(features::Compat::HAS_JOURNAL),
            read_only: None,
            live: None,
            errors: RecordedErrors::of(superblock),
            on_error: if superblock.continues_on_error() { OnError::Continue } else { OnError::ReadOnly },
            reserved_for: superblock.reserved_for(),
            group_of_directory: superblock.gives_group_of_directory(),
            space: Space::of(superblock),
        }
    }
}

impl Space {
    /// Returns the numbers in a superblock. The overhead is 0 unless the superblock has it.
    fn of(superblock: &Superblock) -> Self {
        let (free_blocks, reserved_blocks) = (superblock.free_blocks(), superblock.reserved_blocks());
        Self {
            block_size: superblock.block_size(),
            blocks: superblock.blocks_count(),
            overhead_blocks: overhead(superblock),
            free_blocks,
            reserved_blocks,
            available_blocks: free_blocks.saturating_sub(reserved_blocks),
            inodes: superblock.inodes_count(),
            free_inodes: superblock.free_inodes(),
        }
    }
}

/// Returns the blocks of overhead that the superblock states; 0 if it states none, as of older
/// versions of mke2fs.
fn overhead(superblock: &Superblock) -> u64 {
    let cluster_blocks = superblock.blocks_per_group() / superblock.clusters_per_group();
    u64::from(superblock.raw().s_overhead_clusters.get()) * u64::from(cluster_blocks)
}

impl Volume {
    /// Returns a description of the volume.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let info = volume.info();
    /// assert!(info.journal && info.features.iter().any(|name| name == "extent"));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn info(&self) -> Info {
        Info {
            read_only: self.engine.read_only().map(str::to_owned),
            live: self.engine.live().cloned(),
            space: self.space(),
            ..Info::of(&self.engine.counts().current())
        }
    }

    /// Reads the block of multi-mount protection; `None` if the volume has none.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// assert!(volume.mmp()?.is_none());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`mmp::read`](crate::mmp::read).
    pub fn mmp(&self) -> Result<Option<MmpState>> {
        mmp::read(&**self.engine.device())
    }

    /// Returns true if the volume was opened read-only.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// assert!(!volume.is_read_only());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.engine.is_read_only()
    }

    /// Returns the used and free space, as statfs(2) does.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let space = volume.space();
    /// assert!(space.free_blocks < space.blocks);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn space(&self) -> Space {
        let layout = self.engine.layout();
        let (counts, allocator) = (self.engine.counts(), self.engine.allocator());
        let free_blocks = counts.free_blocks().saturating_sub(allocator.delayed_blocks());
        let reserved_blocks = self.engine.superblock().reserved_blocks();
        Space {
            block_size: layout.block_size.bytes(),
            blocks: layout.blocks_count,
            overhead_blocks: self.overhead_blocks(),
            free_blocks,
            reserved_blocks,
            available_blocks: allocator.available(free_blocks, reserved_blocks),
            inodes: layout.inodes_count,
            free_inodes: counts.free_inodes(),
        }
    }

    /// Returns the superblock's own figure, or computes it if the superblock has none.
    fn overhead_blocks(&self) -> u64 {
        let layout = self.engine.layout();
        match overhead(self.engine.superblock()) {
            0 => u64::from(layout.first_data_block) + layout.system_blocks(),
            blocks => blocks,
        }
    }

    /// Returns the number of transactions that became durable since the volume was opened.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let before = volume.commits();
    /// volume.create_dir("/dir", 0o755)?;
    /// volume.sync()?;
    /// assert!(volume.commits() > before);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.engine.journal().commits()
    }

    /// Implements [`ServerVolume::stop`](crate::server::ServerVolume::stop).
    pub(crate) fn stop(&self, why: &Error) {
        self.engine.health().stop(why.clone());
    }

    /// Implements [`ServerVolume::note_error`](crate::server::ServerVolume::note_error).
    pub(crate) fn note_error(&self, error: &Error) {
        self.engine.health().note(ErrorPlace::default(), error.clone());
    }

    /// Returns why the volume refuses changes: an earlier error, or that it is closed. `None` if it
    /// has not stopped.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// assert_eq!(volume.stopped(), None);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        match self.engine.health().check() {
            Err(Error::Stopped(why)) => Some(why.to_string()),
            Err(error) => Some(error.to_string()),
            Ok(()) => None,
        }
    }

    /// Returns true if the volume was shut down by [`abort`](Self::abort).
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.engine.health().is_shut_down()
    }
}

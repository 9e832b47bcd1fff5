//! Defines the options of a new volume.

use parext4_format::features::Incompat;
use parext4_format::mmp::DEFAULT_UPDATE_INTERVAL;

use super::features::Features;
use crate::error::Result;

/// Options of a new volume. The default is the default of mke2fs.
///
/// ```
/// use parext4::{MemDevice, MkfsOptions, mkfs};
///
/// # fn main() -> Result<(), parext4::Error> {
/// let options = MkfsOptions::new().block_size(1024).label("scratch").journal(false);
/// let summary = mkfs(&MemDevice::new(4 << 20), &options)?;
/// assert_eq!((summary.block_size, summary.journal_blocks), (1024, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MkfsOptions {
    /// Block size in bytes: 1024, 2048 or 4096. `None` chooses by the size of the device.
    pub block_size: Option<u32>,
    /// Name of the volume, at most 16 bytes.
    pub label: String,
    /// UUID of the volume. `None` chooses a random one.
    pub uuid: Option<[u8; 16]>,
    /// Bytes of the volume for each inode, from 1024 to 67108864. `None` chooses by the size of the device.
    pub inode_ratio: Option<u64>,
    /// Number of inodes, rounded up to what fills the inode tables. `None` chooses by `inode_ratio`.
    pub inodes: Option<u32>,
    /// Number of blocks of a group: a multiple of 8, from 256 to 8 times the block size. `None` chooses the largest.
    pub blocks_per_group: Option<u32>,
    /// Number of groups whose bitmaps and inode tables lie together, a power of two. `None` chooses 16.
    pub flex_groups: Option<u32>,
    /// Revision of the format: 1, or 0, which has no features and inodes of 128 bytes.
    pub revision: u32,
    /// Creates a journal. A volume of less than 2048 blocks gets one only if `journal_blocks` is set.
    pub journal: bool,
    /// Length of the journal in blocks, from 1024 to 10240000. `None` chooses by the size of the volume.
    pub journal_blocks: Option<u32>,
    /// Multi-mount protection: only one machine at a time can open the volume for writing. `None`, the default: if
    /// other machines reach the device ([`Device::sharing`](crate::Device::sharing)).
    pub mmp: Option<bool>,
    /// Time in seconds between two signs of life of the machine that has the volume open, from 1 to 300. Other machines wait
    /// for at least twice as long, and at least 11 seconds, before they use a volume that was not closed.
    pub mmp_update_interval: u16,
    /// Directories may ignore case (`casefold`), with names in UTF-8. `None`: they may not. The flag of a directory decides whether it does.
    pub casefold: Option<Casefold>,
    /// Size of an inode in bytes: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// Percentage of the blocks that only root may use, at most 50.
    pub reserved_percent: u8,
    /// All timestamps of the volume, in seconds since 1970. `None` uses the clock.
    pub now: Option<u32>,
    /// Secret of the directory hash. `None` chooses a random one.
    pub hash_seed: Option<[u8; 16]>,
    /// User and group of the root directory.
    pub owner: (u32, u32),
    /// The device is known to read as zeros, as a new sparse file does. Then nothing is overwritten with zeros.
    pub device_is_zero: bool,
    /// The features, apart from the journal and multi-mount protection.
    pub(super) features: Features,
    /// Features were added by name.
    pub(super) adds_features: bool,
}

/// What directories that ignore case do with names that are not UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Casefold {
    /// They compare them byte by byte.
    #[default]
    Lenient,
    /// They refuse them.
    Strict,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            block_size: None,
            label: String::new(),
            uuid: None,
            inode_ratio: None,
            inodes: None,
            blocks_per_group: None,
            flex_groups: None,
            revision: 1,
            journal: true,
            journal_blocks: None,
            mmp: None,
            mmp_update_interval: DEFAULT_UPDATE_INTERVAL,
            casefold: None,
            inode_size: 256,
            reserved_percent: 5,
            now: None,
            hash_seed: None,
            owner: (0, 0),
            device_is_zero: false,
            features: Features::default(),
            adds_features: false,
        }
    }
}

impl MkfsOptions {
    /// Returns the defaults of mke2fs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`block_size`](field@Self::block_size).
    #[must_use]
    pub fn block_size(mut self, bytes: impl Into<Option<u32>>) -> Self {
        self.block_size = bytes.into();
        self
    }

    /// Sets [`label`](field@Self::label).
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets [`uuid`](field@Self::uuid).
    #[must_use]
    pub fn uuid(mut self, uuid: impl Into<Option<[u8; 16]>>) -> Self {
        self.uuid = uuid.into();
        self
    }

    /// Sets [`inode_ratio`](field@Self::inode_ratio).
    #[must_use]
    pub fn inode_ratio(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.inode_ratio = bytes.into();
        self
    }

    /// Sets [`inodes`](field@Self::inodes).
    #[must_use]
    pub fn inodes(mut self, inodes: impl Into<Option<u32>>) -> Self {
        self.inodes = inodes.into();
        self
    }

    /// Sets [`blocks_per_group`](field@Self::blocks_per_group).
    #[must_use]
    pub fn blocks_per_group(mut self, blocks: impl Into<Option<u32>>) -> Self {
        self.blocks_per_group = blocks.into();
        self
    }

    /// Sets [`flex_groups`](field@Self::flex_groups).
    #[must_use]
    pub fn flex_groups(mut self, groups: impl Into<Option<u32>>) -> Self {
        self.flex_groups = groups.into();
        self
    }

    /// Sets [`revision`](field@Self::revision).
    #[must_use]
    pub fn revision(mut self, revision: u32) -> Self {
        self.revision = revision;
        self
    }

    /// Adds the features of a list, or removes a feature if `^` precedes its name. Names are separated by commas, and are the
    /// names that mke2fs uses; `none` removes all features.
    ///
    /// ```
    /// use parext4::{MemDevice, MkfsOptions, mkfs};
    ///
    /// let options = MkfsOptions::new().features("^filetype,^resize_inode,meta_bg")?;
    /// let summary = mkfs(&MemDevice::new(16 << 20), &options)?;
    /// assert!(summary.features.iter().any(|name| name == "meta_bg"));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) names a feature that cannot be chosen.
    pub fn features(mut self, list: &str) -> Result<Self> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let (wanted, name) = word.strip_prefix('^').map_or((true, word), |name| (false, name));
            match name {
                "none" => (self.features, self.journal, self.mmp) = (Features::NONE, false, Some(false)),
                "has_journal" => self.journal = wanted,
                "mmp" => self.mmp = Some(wanted),
                "casefold" => self.casefold = wanted.then(|| self.casefold.unwrap_or_default()),
                name => self.features.set(name, wanted)?,
            }
            self.adds_features |= wanted && name != "none";
        }
        Ok(self)
    }

    /// Maps files by extents. Without them, files are mapped by indirect blocks, and the volume does not have the feature
    /// `64bit` either, because block numbers of files have 32 bits.
    #[must_use]
    pub fn extents(mut self, extents: bool) -> Self {
        self.features.incompat.set(Incompat::EXTENTS | Incompat::BIT64, extents);
        self
    }

    /// Sets [`journal`](field@Self::journal).
    #[must_use]
    pub fn journal(mut self, journal: bool) -> Self {
        self.journal = journal;
        self
    }

    /// Sets [`journal_blocks`](field@Self::journal_blocks).
    #[must_use]
    pub fn journal_blocks(mut self, blocks: impl Into<Option<u32>>) -> Self {
        self.journal_blocks = blocks.into();
        self
    }

    /// Sets [`mmp`](field@Self::mmp).
    #[must_use]
    pub fn mmp(mut self, protect: impl Into<Option<bool>>) -> Self {
        self.mmp = protect.into();
        self
    }

    /// Sets [`mmp_update_interval`](field@Self::mmp_update_interval), in seconds.
    #[must_use]
    pub fn mmp_update_interval(mut self, seconds: u16) -> Self {
        self.mmp_update_interval = seconds;
        self
    }

    /// Sets [`casefold`](field@Self::casefold).
    #[must_use]
    pub fn casefold(mut self, casefold: impl Into<Option<Casefold>>) -> Self {
        self.casefold = casefold.into();
        self
    }

    /// Sets [`inode_size`](field@Self::inode_size).
    #[must_use]
    pub fn inode_size(mut self, bytes: u16) -> Self {
        self.inode_size = bytes;
        self
    }

    /// Sets [`reserved_percent`](field@Self::reserved_percent).
    #[must_use]
    pub fn reserved_percent(mut self, percent: u8) -> Self {
        self.reserved_percent = percent;
        self
    }

    /// Sets [`now`](field@Self::now).
    #[must_use]
    pub fn now(mut self, seconds: impl Into<Option<u32>>) -> Self {
        self.now = seconds.into();
        self
    }

    /// Sets [`hash_seed`](field@Self::hash_seed).
    #[must_use]
    pub fn hash_seed(mut self, seed: impl Into<Option<[u8; 16]>>) -> Self {
        self.hash_seed = seed.into();
        self
    }

    /// Sets [`owner`](field@Self::owner).
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// Sets [`device_is_zero`](field@Self::device_is_zero).
    #[must_use]
    pub fn device_is_zero(mut self, is_zero: bool) -> Self {
        self.device_is_zero = is_zero;
        self
    }
}

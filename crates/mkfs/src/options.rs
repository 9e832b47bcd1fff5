//! Defines the options of a new volume.

use parext4_format::features::Incompat;
use parext4_format::mmp::DEFAULT_UPDATE_INTERVAL;
use parext4_format::quota::QuotaKinds;

use crate::error::Result;
use crate::external_journal::ExternalJournal;
use crate::features::Features;
use crate::types::{FsType, Usage};

/// Options of a new volume. The default is the default of mke2fs.
///
/// ```
/// use parext4_device::MemDevice;
/// use parext4_mkfs::{MkfsOptions, mkfs};
///
/// # fn main() -> Result<(), parext4_mkfs::MkfsError> {
/// let options = MkfsOptions::new().block_size(1024).label("scratch").journal(false);
/// let summary = mkfs(&MemDevice::new(4 << 20), &options)?;
/// assert_eq!((summary.block_size, summary.journal_blocks), (1024, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MkfsOptions {
    /// Block size in bytes: a power of two from 1024 to 65536. `None` chooses by the size of the
    /// device.
    pub block_size: Option<u32>,
    /// Size of a cluster, the unit of allocation, in bytes: a power of two from the block size to
    /// 16384 blocks. Needs the feature `bigalloc`. `None`, the default, chooses 16 blocks, or one
    /// without the feature.
    pub cluster_size: Option<u32>,
    /// Name of the volume, at most 16 bytes.
    pub label: String,
    /// UUID of the volume. `None` chooses a random one.
    pub uuid: Option<[u8; 16]>,
    /// Bytes of the volume for each inode, from 1024 to 67108864. `None` chooses by the size of the
    /// device.
    pub inode_ratio: Option<u64>,
    /// Number of inodes, rounded up so that they fill the inode tables. `None` chooses by
    /// `inode_ratio`.
    pub inodes: Option<u32>,
    /// Number of blocks, or clusters, of a group: a multiple of 8, from 256 to 8 times the block
    /// size. `None` chooses the largest.
    pub blocks_per_group: Option<u32>,
    /// Number of groups whose bitmaps and inode tables lie together, a power of two. `None` chooses
    /// 16.
    pub flex_groups: Option<u32>,
    /// Revision of the format: 1, or 0, which has no features and inodes of 128 bytes.
    pub revision: u32,
    /// Whether to create a journal. A volume of less than 2048 blocks gets one only if
    /// `journal_blocks` is set.
    pub journal: bool,
    /// Length of the journal in blocks, from 1024 to 10240000. `None` chooses by the size of the
    /// volume.
    pub journal_blocks: Option<u32>,
    /// First block of the journal. `None` chooses a place near the middle of the volume.
    pub journal_start: Option<u64>,
    /// Whether to leave the journal's blocks unzeroed. Old transactions on the device may then look
    /// like transactions of the volume if it crashes before the journal was used once.
    pub lazy_journal: bool,
    /// Length of the area for fast commits, in blocks, with the feature `fast_commit`; it adds to
    /// the length of the journal. `None` chooses a 64th of the journal.
    pub fast_commit_blocks: Option<u32>,
    /// Device that holds the journal in place of the volume.
    pub external_journal: Option<ExternalJournal>,
    /// Multi-mount protection: only one machine at a time can open the volume for writing. `None`,
    /// the default, enables it if other machines reach the device
    /// ([`Device::sharing`](parext4_device::Device::sharing)).
    pub mmp: Option<bool>,
    /// Time in seconds between two updates by the machine that has the volume open, from 1 to 300.
    /// Other machines wait for at least twice as long, and at least 11 seconds, before they use a
    /// volume that was not closed.
    pub mmp_update_interval: u16,
    /// Treatment of names in directories that ignore case (`casefold`), in UTF-8. `None` allows no
    /// such directories. A flag of each directory decides whether it ignores case.
    pub casefold: Option<Casefold>,
    /// Size of an inode in bytes: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// Percentage of the blocks that only root may use, at most 50.
    pub reserved_percent: f64,
    /// Reaction of the kernel to an error in the volume.
    pub on_error: OnError,
    /// Directory on which the volume counts as last mounted, at most 63 bytes.
    pub last_mounted: String,
    /// Blocks that a RAID writes to one disk before it uses the next; 0 without a RAID.
    pub stride: u16,
    /// Blocks that a RAID writes to all disks before it uses the first again; 0 without a RAID.
    pub stripe_width: u32,
    /// Number of blocks to which the volume can be extended while it is mounted. `None` chooses
    /// 1024 times its size.
    pub max_blocks: Option<u64>,
    /// Number of backups of the superblock with the feature `sparse_super2`, at most 2.
    pub superblock_backups: u8,
    /// Whether bitmaps, inode tables and the journal of all groups are at the start of the volume.
    /// Needs the feature `flex_bg`.
    pub packed_metadata: bool,
    /// Whether inode tables are marked as uninitialised instead of zeroed. Without checksums of
    /// groups they are always zeroed.
    pub lazy_inode_tables: bool,
    /// Length of the orphan file in blocks, with the feature `orphan_file`. `None` chooses by the
    /// size of the volume.
    pub orphan_file_blocks: Option<u32>,
    /// The quotas that the volume counts with the feature `quota`. `None` counts by users and
    /// groups, and with the feature `project` by projects, too.
    pub quotas: Option<QuotaKinds>,
    /// Whether the volume is for tests of drivers in development.
    pub for_tests: bool,
    /// Whether to discard all blocks of the device first.
    pub discard: bool,
    /// All timestamps of the volume, in seconds since 1970. `None` uses the clock.
    pub now: Option<u32>,
    /// Secret of the directory hash. `None` chooses a random one.
    pub hash_seed: Option<[u8; 16]>,
    /// User and group of the root directory.
    pub owner: (u32, u32),
    /// Permissions of the root directory.
    pub root_permissions: u16,
    /// Whether the device is known to read as zeros, as a new sparse file does. Then nothing is
    /// overwritten with zeros.
    pub device_is_zero: bool,
    /// The features, apart from the journal and multi-mount protection.
    pub(crate) features: Features,
    /// Whether features were added by name.
    pub(crate) adds_features: bool,
    /// The use for which sizes are chosen. `None` chooses by the size of the device.
    pub(crate) usage: Option<Usage>,
}

/// Reaction of the kernel to an error in a volume (`s_errors`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The kernel continues.
    #[default]
    Continue = 1,
    /// The kernel refuses changes from then on.
    RemountReadOnly = 2,
    /// The kernel stops the machine.
    Panic = 3,
}

/// Treatment of names that are not UTF-8 in directories that ignore case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Casefold {
    /// Names that are not UTF-8 are compared byte by byte.
    #[default]
    Lenient,
    /// Names that are not UTF-8 are refused.
    Strict,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            block_size: None,
            cluster_size: None,
            label: String::new(),
            uuid: None,
            inode_ratio: None,
            inodes: None,
            blocks_per_group: None,
            flex_groups: None,
            revision: 1,
            journal: true,
            journal_blocks: None,
            journal_start: None,
            lazy_journal: false,
            fast_commit_blocks: None,
            external_journal: None,
            mmp: None,
            mmp_update_interval: DEFAULT_UPDATE_INTERVAL,
            casefold: None,
            inode_size: 256,
            reserved_percent: 5.0,
            on_error: OnError::Continue,
            last_mounted: String::new(),
            stride: 0,
            stripe_width: 0,
            max_blocks: None,
            superblock_backups: 2,
            packed_metadata: false,
            lazy_inode_tables: true,
            orphan_file_blocks: None,
            quotas: None,
            for_tests: false,
            discard: false,
            now: None,
            hash_seed: None,
            owner: (0, 0),
            root_permissions: 0o755,
            device_is_zero: false,
            features: FsType::Ext4.features(),
            adds_features: false,
            usage: None,
        }
    }
}

impl MkfsOptions {
    /// Returns the defaults of mke2fs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses the features of a type of volume. Drops the choices of earlier calls of
    /// [`features`](Self::features).
    #[must_use]
    pub fn fs_type(mut self, fs_type: FsType) -> Self {
        self.features = fs_type.features();
        self.journal = fs_type.has_journal();
        self
    }

    /// Sets [`cluster_size`](field@Self::cluster_size).
    #[must_use]
    pub fn cluster_size(mut self, bytes: impl Into<Option<u32>>) -> Self {
        self.cluster_size = bytes.into();
        self
    }

    /// Chooses the block size and the inode ratio, unless they are set, for uses in the words of
    /// mke2fs: `floppy`, `small`, `default`, `big`, `huge`, `news`, `largefile` and `largefile4`,
    /// separated by commas. A later word takes precedence.
    ///
    /// # Errors
    /// [`MkfsError::Invalid`](crate::MkfsError::Invalid) names a word that is unknown.
    pub fn usage(mut self, list: &str) -> Result<Self> {
        self.usage = Some(Usage::parse(list)?);
        Ok(self)
    }

    /// Returns the block size that a volume on a device of `bytes` bytes will have.
    ///
    /// # Errors
    /// If the device of the journal cannot be read, which determines the block size.
    pub fn block_size_on(&self, bytes: u64) -> Result<u32> {
        if let Some(block_size) = self.block_size {
            return Ok(block_size);
        }
        match &self.external_journal {
            Some(journal) => Ok(journal.read()?.block_size),
            None => Ok(self.usage.unwrap_or_else(|| Usage::for_size(bytes)).block_size),
        }
    }

    /// Adds the features of a list, or removes a feature if `^` precedes its name. Names are
    /// separated by commas, and are the names that mke2fs uses; `none` removes all features.
    ///
    /// ```
    /// use parext4_device::MemDevice;
    /// use parext4_mkfs::{MkfsOptions, mkfs};
    ///
    /// let options = MkfsOptions::new().features("^filetype,^resize_inode,meta_bg")?;
    /// let summary = mkfs(&MemDevice::new(16 << 20), &options)?;
    /// assert!(summary.features.iter().any(|name| name == "meta_bg"));
    /// # Ok::<(), parext4_mkfs::MkfsError>(())
    /// ```
    ///
    /// # Errors
    /// [`MkfsError::Invalid`](crate::MkfsError::Invalid) names a feature that cannot be chosen.
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

    /// Chooses whether files are mapped by extents. If not, they are mapped by indirect blocks, and
    /// the volume does not have the feature `64bit` either, because block numbers of files have 32
    /// bits.
    #[must_use]
    pub fn extents(mut self, extents: bool) -> Self {
        self.features.incompat.set(Incompat::EXTENTS | Incompat::BIT64, extents);
        self
    }

    /// Sets [`label`](field@Self::label).
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets [`last_mounted`](field@Self::last_mounted).
    #[must_use]
    pub fn last_mounted(mut self, dir: impl Into<String>) -> Self {
        self.last_mounted = dir.into();
        self
    }

    /// Sets [`reserved_percent`](field@Self::reserved_percent).
    #[must_use]
    pub fn reserved_percent(mut self, percent: impl Into<f64>) -> Self {
        self.reserved_percent = percent.into();
        self
    }

    /// Sets [`owner`](field@Self::owner).
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }
}

/// Defines a method that sets each field: `name = type`, or `name: type` for a field that may be
/// `None`.
macro_rules! setters {
    ($($value:ident = $value_type:ty,)* ; $($choice:ident: $choice_type:ty,)*) => {
        impl MkfsOptions {
            $(
                #[doc = concat!("Sets [`", stringify!($value), "`](field@Self::", stringify!($value), ").")]
                #[must_use]
                pub fn $value(mut self, $value: $value_type) -> Self {
                    self.$value = $value;
                    self
                }
            )*
            $(
                #[doc = concat!("Sets [`", stringify!($choice), "`](field@Self::", stringify!($choice), ").")]
                #[must_use]
                pub fn $choice(mut self, $choice: impl Into<Option<$choice_type>>) -> Self {
                    self.$choice = $choice.into();
                    self
                }
            )*
        }
    };
}

setters! {
    revision = u32,
    journal = bool,
    lazy_journal = bool,
    mmp_update_interval = u16,
    inode_size = u16,
    on_error = OnError,
    stride = u16,
    stripe_width = u32,
    superblock_backups = u8,
    packed_metadata = bool,
    lazy_inode_tables = bool,
    for_tests = bool,
    discard = bool,
    root_permissions = u16,
    device_is_zero = bool,
    ;
    block_size: u32,
    uuid: [u8; 16],
    inode_ratio: u64,
    inodes: u32,
    blocks_per_group: u32,
    flex_groups: u32,
    journal_blocks: u32,
    journal_start: u64,
    fast_commit_blocks: u32,
    external_journal: ExternalJournal,
    mmp: bool,
    casefold: Casefold,
    max_blocks: u64,
    orphan_file_blocks: u32,
    quotas: QuotaKinds,
    now: u32,
    hash_seed: [u8; 16],
}

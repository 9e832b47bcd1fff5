//! Parses lists of options in the words of mke2fs, such as the values of `-E` and `-J`.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use parext4::mkfs::{Casefold, OnError};
use parext4::{MkfsOptions, QuotaKinds};
use uuid::Uuid;

use crate::size;

/// Names of the options of `-E`.
const EXTENDED: &str = "discard, encoding, encoding_flags, hash_seed, lazy_itable_init, lazy_journal_init, mmp_update_interval, nodiscard, \
                        num_backup_sb, offset, orphan_file_size, packed_meta_blocks, quotatype, resize, root_owner, root_perms, stride, \
                        stripe_width and test_fs";

/// A number of blocks, or of bytes if it has a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Blocks(u64),
    Bytes(u64),
}

impl FromStr for Amount {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            Ok(blocks) => Ok(Self::Blocks(blocks)),
            Err(_) => Ok(Self::Bytes(size::parse(text).map_err(anyhow::Error::msg)?)),
        }
    }
}

impl Amount {
    pub fn in_blocks(self, block_size: u32) -> u64 {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Bytes(bytes) => bytes / u64::from(block_size),
        }
    }
}

/// The options of `-E`.
#[derive(Clone, Debug, Default)]
pub struct Extended {
    mmp_update_interval: Option<u16>,
    hash_seed: Option<Uuid>,
    has_encoding: bool,
    strict: bool,
    stride: u16,
    stripe_width: u32,
    superblock_backups: Option<u8>,
    packed_metadata: bool,
    eager_inode_tables: bool,
    lazy_journal: bool,
    discard: bool,
    root_owner: Option<(u32, u32)>,
    root_permissions: Option<u16>,
    for_tests: bool,
    quotas: Option<QuotaKinds>,
    pub resize: Option<Amount>,
    pub orphan_file_size: Option<Amount>,
    pub offset: u64,
}

/// Parses the list of `-E`.
pub fn extended(list: &str) -> Result<Extended> {
    let mut extended = Extended::default();
    for word in list.split(',').filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        extended.set(word, name, value).map_err(|error| anyhow!("{name}: {error:#}"))?;
    }
    Ok(extended)
}

/// Parses kinds of quotas, separated by colons.
fn quota_kinds(list: &str) -> Result<QuotaKinds> {
    let mut kinds = QuotaKinds::default();
    for word in list.split([':', ';']) {
        match word {
            "usr" | "usrquota" => kinds.user = true,
            "grp" | "grpquota" => kinds.group = true,
            "prj" | "prjquota" => kinds.project = true,
            _ => bail!("{word:?} is not usrquota, grpquota or prjquota"),
        }
    }
    Ok(kinds)
}

impl Extended {
    fn set(&mut self, word: &str, name: &str, value: Option<&str>) -> Result<()> {
        match (name, value) {
            ("mmp_update_interval", Some(value)) => self.mmp_update_interval = Some(value.parse()?),
            ("hash_seed", Some(value)) => self.hash_seed = Some(value.parse()?),
            ("encoding", Some("utf8" | "utf8-12.1")) => self.has_encoding = true,
            ("encoding_flags", Some("strict")) => self.strict = true,
            ("stride", Some(value)) => self.stride = value.parse()?,
            ("stripe_width" | "stripe-width", Some(value)) => self.stripe_width = value.parse()?,
            ("num_backup_sb", Some(value)) => self.superblock_backups = Some(value.parse()?),
            ("packed_meta_blocks", value) => self.packed_metadata = is_on(value)?,
            ("lazy_itable_init", value) => self.eager_inode_tables = !is_on(value)?,
            ("lazy_journal_init", value) => self.lazy_journal = is_on(value)?,
            ("discard", None) => self.discard = true,
            ("nodiscard", None) => self.discard = false,
            ("root_owner", None) => self.root_owner = Some(own_ids()),
            ("root_owner", Some(value)) => self.root_owner = Some(owner(value)?),
            ("root_perms", Some(value)) => self.root_permissions = Some(permissions(value)?),
            ("test_fs", None) => self.for_tests = true,
            ("resize", Some(value)) => self.resize = Some(value.parse()?),
            ("orphan_file_size", Some(value)) => self.orphan_file_size = Some(value.parse()?),
            ("quotatype", Some(value)) => self.quotas = Some(quota_kinds(value)?),
            ("offset", Some(value)) => self.offset = size::parse(value).map_err(anyhow::Error::msg)?,
            _ => bail!("option {word:?} is unknown; there are {EXTENDED}"),
        }
        Ok(())
    }

    /// Adds the options that need no block size.
    pub fn apply(&self, mut options: MkfsOptions) -> Result<MkfsOptions> {
        options = options
            .hash_seed(self.hash_seed.map(Uuid::into_bytes))
            .quotas(self.quotas)
            .stride(self.stride)
            .stripe_width(self.stripe_width)
            .packed_metadata(self.packed_metadata)
            .lazy_inode_tables(!self.eager_inode_tables)
            .lazy_journal(self.lazy_journal)
            .discard(self.discard)
            .for_tests(self.for_tests);
        if let Some(backups) = self.superblock_backups {
            options = options.superblock_backups(backups);
        }
        if let Some((uid, gid)) = self.root_owner {
            options = options.owner(uid, gid);
        }
        if let Some(permissions) = self.root_permissions {
            options = options.root_permissions(permissions);
        }
        if let Some(seconds) = self.mmp_update_interval {
            options = options.mmp_update_interval(seconds);
        }
        if self.has_encoding && options.casefold.is_none() {
            options = options.casefold(Casefold::Lenient);
        }
        if self.strict {
            ensure!(options.casefold.is_some(), "encoding_flags needs encoding=utf8");
            options = options.casefold(Casefold::Strict);
        }
        Ok(options)
    }
}

/// Returns whether a switch is on: without a value, or with a number other than 0.
fn is_on(value: Option<&str>) -> Result<bool> {
    value.map_or(Ok(true), |value| Ok(value.parse::<u32>()? != 0))
}

/// Returns the user and the group that run the command.
pub fn own_ids() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

fn owner(value: &str) -> Result<(u32, u32)> {
    let (uid, gid) = value.split_once(':').context("expected UID:GID")?;
    Ok((uid.parse()?, gid.parse()?))
}

fn permissions(octal: &str) -> Result<u16> {
    let permissions = u16::from_str_radix(octal, 8)?;
    ensure!(permissions <= 0o7777, "expected an octal number of at most 7777");
    Ok(permissions)
}

/// The options of `-J`.
#[derive(Clone, Debug, Default)]
pub struct JournalWords {
    /// In MiB.
    pub size: Option<u64>,
    pub device: Option<PathBuf>,
    pub location: Option<Amount>,
    /// In KiB.
    pub fast_commit_size: Option<u64>,
}

/// Parses the list of `-J`.
pub fn journal(list: &str) -> Result<JournalWords> {
    let mut words = JournalWords::default();
    for word in list.split(',').filter(|word| !word.is_empty()) {
        words.set(word).map_err(|error| anyhow!("{error:#}"))?;
    }
    ensure!(
        words.device.is_none() || (words.size.is_none() && words.location.is_none()),
        "a journal is on a device of its own, or has a size and a location in the volume"
    );
    Ok(words)
}

impl JournalWords {
    fn set(&mut self, word: &str) -> Result<()> {
        match word.split_once('=') {
            Some(("size", value)) => self.size = Some(value.parse().context("size in MiB")?),
            Some(("device", value)) => self.device = Some(device(value)),
            Some(("location", value)) => self.location = Some(value.parse().context("location")?),
            Some(("fast_commit_size", value)) => {
                self.fast_commit_size = Some(value.parse().context("fast_commit_size in KiB")?);
            }
            _ => bail!(
                "option {word:?} is unknown; there are size=MIB, device=DEVICE, location=BLOCK and fast_commit_size=KIB"
            ),
        }
        Ok(())
    }
}

/// Returns the path of a device that may be named by its label or UUID, as mke2fs accepts it.
fn device(name: &str) -> PathBuf {
    match name.split_once('=') {
        Some(("UUID", uuid)) => format!("/dev/disk/by-uuid/{uuid}").into(),
        Some(("LABEL", label)) => format!("/dev/disk/by-label/{label}").into(),
        _ => name.into(),
    }
}

/// Parses what the kernel does at an error.
pub fn on_error(word: &str) -> Result<OnError> {
    match word {
        "continue" => Ok(OnError::Continue),
        "remount-ro" => Ok(OnError::RemountReadOnly),
        "panic" => Ok(OnError::Panic),
        _ => bail!("behaviour {word:?} is unknown; there are continue, remount-ro and panic"),
    }
}

/// The UUID of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Id(pub Option<Uuid>);

/// Parses a UUID, `clear` or `random`.
pub fn id(word: &str) -> Result<Id> {
    match word {
        "clear" => Ok(Id(Some(Uuid::nil()))),
        "random" => Ok(Id(None)),
        word => Ok(Id(Some(word.parse().map_err(|_| anyhow!("expected a UUID, clear or random"))?))),
    }
}

/// Parses the size that follows the device, and returns it in bytes. A number without a unit counts
/// blocks, or KiB if the command line has no block size.
pub fn volume_size(text: &str, block_size: Option<u64>) -> Result<u64> {
    match text.parse::<Amount>()? {
        Amount::Bytes(bytes) => Ok(bytes),
        Amount::Blocks(blocks) => {
            blocks.checked_mul(block_size.unwrap_or(1024)).context("the size is too large")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_are_named() {
        for list in [
            "stride=4,frob=1",
            "discard=1",
            "encoding=latin1",
            "root_owner=1",
            "root_perms=99",
            "quotatype=x=y,",
        ] {
            assert!(extended(list).is_err(), "{list}");
        }
        assert!(format!("{:#}", extended("frob").unwrap_err()).contains("\"frob\" is unknown"));
        assert!(format!("{:#}", journal("speed=1").unwrap_err()).contains("\"speed=1\" is unknown"));
        assert!(journal("device=/dev/null,size=4").is_err());
        assert!(on_error("reboot").is_err() && id("time").is_err());
    }

    #[test]
    fn sizes_have_the_units_of_mke2fs() {
        assert_eq!(volume_size("1000", None).unwrap(), 1_024_000);
        assert_eq!(volume_size("1000", Some(4096)).unwrap(), 4_096_000);
        assert_eq!(volume_size("64M", Some(4096)).unwrap(), 64 << 20);
        assert_eq!("8M".parse::<Amount>().unwrap().in_blocks(1024), 8192);
        assert!(!is_on(Some("0")).unwrap() && is_on(None).unwrap());
        assert_eq!(device("UUID=12"), PathBuf::from("/dev/disk/by-uuid/12"));
    }
}

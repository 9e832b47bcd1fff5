//! The superblock: the geometry, features and counters of the file system.
//!
//! [`Superblock::parse`] checks every field that the accessors compute with, so the accessors
//! cannot fail. Source: kernel documentation, "Super Block".

mod access;
mod check;
mod descriptors;
mod encoding;
mod errors;
mod geometry;
mod mmp;
mod quota;
mod raw;
mod revision;
mod upkeep;

use zerocopy::{FromBytes, IntoBytes};

pub use access::Access;
pub use check::{MAX_CLUSTERS_PER_GROUP, max_inodes_per_group};
pub use descriptors::{Copies, SuperCopies};
pub use encoding::Encoding;
pub use errors::{ERROR_CORRUPTED, ERROR_IO, ErrorRecord};
pub use raw::RawSuperblock;

use crate::checksum::{ChecksumSeed, crc32c};
use crate::error::{FormatError, Result};
use crate::features::{Compat, Incompat, RoCompat};

/// `s_magic`.
pub const MAGIC: u16 = 0xef53;
/// `s_state`: cleanly unmounted.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were found.
pub const STATE_ERROR: u16 = 2;
/// `s_state`: orphans are being recovered.
pub const STATE_ORPHANS: u16 = 4;

/// `s_errors`: make the file system read-only.
const ERRORS_READ_ONLY: u16 = 2;
/// `s_errors`: panic.
const ERRORS_PANIC: u16 = 3;

/// `s_default_mount_opts`: new files get the group of their directory (`EXT4_DEFM_BSDGROUPS`).
const DEFAULT_BSD_GROUPS: u32 = 2;
/// `s_checksum_type`: crc32c, the only one defined.
const CHECKSUM_CRC32C: u8 = 1;
/// `s_flags`: the directory hash treats bytes as signed.
const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: the directory hash treats bytes as unsigned.
const FLAG_UNSIGNED_HASH: u32 = 2;
/// `s_creator_os`: Linux.
const CREATOR_LINUX: u32 = 0;
/// `s_creator_os`: GNU/Hurd.
const CREATOR_HURD: u32 = 1;
/// Whether the C compiler treats a `char` as unsigned on this machine.
const CHAR_IS_UNSIGNED: bool = std::ffi::c_char::MIN == 0;
/// Offset of `s_checksum`, which covers all bytes before it.
const CHECKSUM_OFFSET: usize = 0x3fc;
/// Offset of `s_feature_ro_compat`.
const RO_COMPAT_OFFSET: usize = std::mem::offset_of!(RawSuperblock, s_feature_ro_compat);

/// A superblock whose geometry has been checked.
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: RawSuperblock,
}

/// Parses and encodes superblocks.
impl Superblock {
    /// Offset of the superblock on the device, in bytes.
    pub const OFFSET: u64 = 1024;
    /// The size of the superblock, in bytes.
    pub const SIZE: usize = 1024;
    /// Length of the longest label, in bytes.
    pub const MAX_LABEL: usize = 16;

    /// Parses the superblock and checks its magic, its checksum (`metadata_csum`) and its geometry.
    ///
    /// # Errors
    /// Names the field that is wrong or not supported. See [`Self::access`] for unsupported
    /// features.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let (raw, _) = RawSuperblock::read_from_prefix(bytes)
            .map_err(|_| FormatError::new("superblock", "size", format_args!("{} bytes", bytes.len())))?;
        let magic = raw.s_magic.get();
        if magic != MAGIC {
            return Err(FormatError::new("superblock", "s_magic", format_args!("{magic:#06x}, not ext4")));
        }
        verify_checksum(&raw)?;
        Self::from_raw(raw)
    }

    /// Returns a superblock with these fields. Checks the geometry, but not the checksum.
    ///
    /// # Errors
    /// Names the field that is wrong or not supported.
    pub fn from_raw(raw: RawSuperblock) -> Result<Self> {
        let sb = Self { raw };
        check::check(&sb)?;
        Ok(sb)
    }

    /// Writes the 1024 bytes, with the checksum if the file system has `metadata_csum`.
    ///
    /// # Panics
    /// If `out` is shorter than [`Self::SIZE`].
    pub fn encode(&self, out: &mut [u8]) {
        let out = &mut out[..Self::SIZE];
        out.copy_from_slice(self.raw.as_bytes());
        Self::seal(out);
    }

    /// Recomputes the checksum of an encoded superblock if it has `metadata_csum`.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Self::SIZE`].
    pub fn seal(bytes: &mut [u8]) {
        let (word, _) = zerocopy::little_endian::U32::ref_from_prefix(&bytes[RO_COMPAT_OFFSET..])
            .expect("the superblock is longer than this offset");
        if RoCompat::from_bits_retain(word.get()).contains(RoCompat::METADATA_CSUM) {
            let checksum = crc32c(!0, &bytes[..CHECKSUM_OFFSET]);
            bytes[CHECKSUM_OFFSET..Self::SIZE].copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Returns the fields in their on-disk layout.
    #[must_use]
    pub const fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Returns the fields for changes. The caller keeps the geometry consistent.
    pub const fn raw_mut(&mut self) -> &mut RawSuperblock {
        &mut self.raw
    }
}

/// Accesses features, identity and state.
impl Superblock {
    /// Returns the features that may be ignored.
    #[must_use]
    pub const fn compat(&self) -> Compat {
        Compat::from_bits_retain(self.raw.s_feature_compat.get())
    }

    /// Sets the features that may be ignored.
    pub fn set_compat(&mut self, features: Compat) {
        self.raise_revision(!self.compat().contains(features));
        self.raw.s_feature_compat.set(features.bits());
    }

    /// Returns the features that an implementation must know to read.
    #[must_use]
    pub const fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.raw.s_feature_incompat.get())
    }

    /// Sets the features that an implementation must know to read.
    pub fn set_incompat(&mut self, features: Incompat) {
        self.raise_revision(!self.incompat().contains(features));
        self.raw.s_feature_incompat.set(features.bits());
    }

    /// Returns the features that an implementation must know to write.
    #[must_use]
    pub const fn ro_compat(&self) -> RoCompat {
        RoCompat::from_bits_retain(self.raw.s_feature_ro_compat.get())
    }

    /// Returns true if a volume stays writable after an error was found in it (`s_errors`).
    #[must_use]
    pub const fn continues_on_error(&self) -> bool {
        !matches!(self.raw.s_errors.get(), ERRORS_READ_ONLY | ERRORS_PANIC)
    }

    /// Returns the user and the group that may allocate reserved blocks besides root
    /// (`s_def_resuid`, `s_def_resgid`).
    #[must_use]
    pub fn reserved_for(&self) -> (u32, u32) {
        (self.raw.s_def_resuid.get().into(), self.raw.s_def_resgid.get().into())
    }

    /// Returns true if new files are to get the group of their directory (`s_default_mount_opts`).
    #[must_use]
    pub const fn gives_group_of_directory(&self) -> bool {
        self.raw.s_default_mount_opts.get() & DEFAULT_BSD_GROUPS != 0
    }

    /// Sets the features that an implementation must know to write.
    pub fn set_ro_compat(&mut self, features: RoCompat) {
        self.raise_revision(!self.ro_compat().contains(features));
        self.raw.s_feature_ro_compat.set(features.bits());
    }

    /// Returns the volume's UUID.
    #[must_use]
    pub const fn uuid(&self) -> [u8; 16] {
        self.raw.s_uuid
    }

    /// Returns the UUID of the journal if it is on a device of its own.
    #[must_use]
    pub const fn journal_uuid(&self) -> [u8; 16] {
        self.raw.s_journal_uuid
    }

    /// Returns the volume's label; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn label(&self) -> String {
        String::from_utf8_lossy(self.label_bytes()).into_owned()
    }

    /// Returns the volume's label, without the padding.
    #[must_use]
    pub fn label_bytes(&self) -> &[u8] {
        self.raw.s_volume_name.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Sets the volume's label, truncated to [`MAX_LABEL`](Self::MAX_LABEL) bytes.
    pub fn set_label(&mut self, label: &[u8]) {
        let kept = label.len().min(Self::MAX_LABEL);
        self.raw.s_volume_name = [0; Self::MAX_LABEL];
        self.raw.s_volume_name[..kept].copy_from_slice(&label[..kept]);
    }

    /// Returns the seed of the directory hashes.
    #[must_use]
    pub fn hash_seed(&self) -> [u32; 4] {
        self.raw.s_hash_seed.map(zerocopy::little_endian::U32::get)
    }

    /// Returns the hash version of new hashed directories, which an index can name: 0 to 2. The
    /// versions 3 to 5 exist only in memory, for unsigned bytes. An unknown version stands for half
    /// MD4, the default of mke2fs.
    #[must_use]
    pub const fn default_hash_version(&self) -> u8 {
        const HALF_MD4: u8 = 1;
        match self.raw.s_def_hash_version {
            version @ 0..=2 => version,
            signed @ 3..=5 => signed - 3,
            _ => HALF_MD4,
        }
    }

    /// Returns true if directory hashes treat the bytes of a name as unsigned. If the superblock
    /// has neither flag, the C compiler of this machine decides by the sign of its `char`, as in
    /// the kernel.
    #[must_use]
    pub const fn hash_is_unsigned(&self) -> bool {
        let flags = self.raw.s_flags.get();
        if flags & (FLAG_UNSIGNED_HASH | FLAG_SIGNED_HASH) == 0 {
            return CHAR_IS_UNSIGNED;
        }
        flags & FLAG_UNSIGNED_HASH != 0
    }

    /// Stores how directory hashes treat the bytes of a name, so that hashes are the same on every
    /// machine from now on.
    pub fn fix_hash_sign(&mut self) {
        let flag = if self.hash_is_unsigned() { FLAG_UNSIGNED_HASH } else { FLAG_SIGNED_HASH };
        self.raw.s_flags.set(self.raw.s_flags.get() | flag);
    }

    /// Returns true if Linux made the volume, or a program that says so.
    #[must_use]
    pub const fn is_of_linux(&self) -> bool {
        self.raw.s_creator_os.get() == CREATOR_LINUX
    }

    /// Returns true if GNU/Hurd made the volume. It uses fields of the inode for other purposes
    /// than Linux.
    #[must_use]
    pub const fn is_of_hurd(&self) -> bool {
        self.raw.s_creator_os.get() == CREATOR_HURD
    }

    /// Returns the seed of all metadata checksums; `None` without `metadata_csum`.
    #[must_use]
    pub fn checksum_seed(&self) -> Option<ChecksumSeed> {
        if !self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            return None;
        }
        Some(self.value_seed())
    }

    /// Returns the seed of the hashes of attribute values in inodes of their own (`ea_inode`), also
    /// without `metadata_csum`.
    #[must_use]
    pub fn value_seed(&self) -> ChecksumSeed {
        if self.incompat().contains(Incompat::CSUM_SEED) {
            ChecksumSeed(self.raw.s_checksum_seed.get())
        } else {
            ChecksumSeed::from_uuid(&self.raw.s_uuid)
        }
    }

    /// Returns `s_state`: [`STATE_VALID`], [`STATE_ERROR`], [`STATE_ORPHANS`].
    #[must_use]
    pub const fn state(&self) -> u16 {
        self.raw.s_state.get()
    }

    /// Sets `s_state`.
    pub fn set_state(&mut self, state: u16) {
        self.raw.s_state.set(state);
    }
}

fn verify_checksum(raw: &RawSuperblock) -> Result<()> {
    let features = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
    if !features.contains(RoCompat::METADATA_CSUM) {
        return Ok(());
    }
    let kind = raw.s_checksum_type;
    if kind != CHECKSUM_CRC32C {
        return Err(FormatError::new("superblock", "s_checksum_type", format_args!("{kind} is not defined")));
    }
    let stored = raw.s_checksum.get();
    let computed = crc32c(!0, &raw.as_bytes()[..CHECKSUM_OFFSET]);
    if stored == computed { Ok(()) } else { Err(FormatError::checksum("superblock", stored, computed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_input_is_an_error() {
        assert_eq!(Superblock::parse(&[0; 1023]).unwrap_err().field, "size");
        assert_eq!(Superblock::parse(&[0; 1024]).unwrap_err().field, "s_magic");
    }
}

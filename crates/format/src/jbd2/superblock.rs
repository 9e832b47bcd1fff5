//! The journal superblock: the first block of the journal.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockType, RawHeader, header, raw_header};
use crate::checksum::crc32c;
use crate::convert::{index, saturating_u32};
use crate::{FormatError, Result};

/// Bytes of the superblock (`journal_superblock_t`).
pub const SUPERBLOCK_SIZE: usize = 1024;
/// `JBD2_CRC32C_CHKSUM`
const CRC32C: u8 = 4;
/// jbd2 refuses a shorter journal (`JBD2_MIN_JOURNAL_BLOCKS`).
const MIN_BLOCKS: u32 = 1024;
/// The number of blocks for fast commits if `s_num_fc_blocks` is 0
/// (`JBD2_DEFAULT_FAST_COMMIT_BLOCKS`).
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// Bytes of the fields of version 1, which ends with `s_errno`.
const V1_SIZE: usize = 0x24;
/// Offset of `s_checksum`.
const CHECKSUM: usize = 0xfc;
const STRUCTURE: &str = "journal superblock";

bitflags::bitflags! {
    /// `s_feature_incompat`: an implementation must not replay a journal with unknown bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalIncompat: u32 {
        /// The journal may have revoke blocks.
        const REVOKE = 1;
        /// Block numbers have 64 bits.
        const BIT64 = 2;
        /// Commit blocks are written along with the blocks of their transaction.
        const ASYNC_COMMIT = 4;
        /// Blocks have checksums, tags 16 bits of them.
        const CSUM_V2 = 8;
        /// Blocks have checksums, tags 32 bits of them.
        const CSUM_V3 = 0x10;
        /// The journal has an area for fast commits.
        const FAST_COMMIT = 0x20;
    }
}

bitflags::bitflags! {
    /// `s_feature_compat`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalCompat: u32 {
        /// Commit blocks carry a CRC-32 of their transaction (the first kind of checksum).
        const CHECKSUM = 1;
    }
}

impl JournalIncompat {
    /// The features with checksums.
    const CSUM: Self = Self::CSUM_V2.union(Self::CSUM_V3);
    const SUPPORTED: Self =
        Self::REVOKE.union(Self::BIT64).union(Self::ASYNC_COMMIT).union(Self::CSUM).union(Self::FAST_COMMIT);
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawSuperblock {
    s_header: RawHeader,
    s_blocksize: U32,
    s_maxlen: U32,
    s_first: U32,
    s_sequence: U32,
    s_start: U32,
    s_errno: U32,
    s_feature_compat: U32,
    s_feature_incompat: U32,
    s_feature_ro_compat: U32,
    s_uuid: [u8; 16],
    s_nr_users: U32,
    s_dynsuper: U32,
    s_max_transaction: U32,
    s_max_trans_data: U32,
    s_checksum_type: u8,
    s_padding2: [u8; 3],
    s_num_fc_blocks: U32,
    s_head: U32,
    s_padding: [U32; 40],
    s_checksum: U32,
    s_users: [u8; 768],
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);

/// The journal superblock. Fields without an accessor keep their values.
#[derive(Clone)]
pub struct JournalSuperblock {
    raw: Box<RawSuperblock>,
}

impl std::fmt::Debug for JournalSuperblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalSuperblock")
            .field("maxlen", &self.maxlen())
            .field("start", &self.start())
            .field("sequence", &self.sequence())
            .field("errno", &self.errno())
            .field("incompat", &self.incompat())
            .finish_non_exhaustive()
    }
}

impl JournalSuperblock {
    /// Returns a superblock (of version 2, without features) for an empty journal of `maxlen`
    /// blocks of `block_size` bytes, whose log starts at block `first`.
    #[must_use]
    pub fn new(block_size: u32, maxlen: u32, first: u32, uuid: &[u8; 16]) -> Self {
        let mut raw = Box::new(RawSuperblock::new_zeroed());
        raw.s_header = raw_header(BlockType::SuperblockV2, 0);
        raw.s_blocksize = U32::new(block_size);
        raw.s_maxlen = U32::new(maxlen);
        raw.s_first = U32::new(first);
        raw.s_sequence = U32::new(1);
        raw.s_nr_users = U32::new(1);
        raw.s_uuid = *uuid;
        Self { raw }
    }

    /// Parses the first bytes of the journal and verifies the checksum if there is one.
    ///
    /// # Errors
    /// [`FormatError`] if this is no superblock of a journal, or the checksum is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let Ok((raw, _)) = RawSuperblock::read_from_prefix(bytes) else {
            return Err(FormatError::new(STRUCTURE, "h_magic", "the block is too short"));
        };
        let mut superblock = match header(bytes) {
            Some((BlockType::SuperblockV1 | BlockType::SuperblockV2, _)) => Self { raw: Box::new(raw) },
            Some((found, _)) => {
                return Err(FormatError::new(STRUCTURE, "h_blocktype", format_args!("is {found:?}")));
            }
            None => return Err(FormatError::new(STRUCTURE, "h_magic", "not a journal")),
        };
        if !superblock.is_version_2() {
            // Version 1 ends before these bytes. As in e2fsck, they are cleared.
            superblock.raw.as_mut_bytes()[V1_SIZE..].fill(0);
        }
        superblock.check_checksum()?;
        Ok(superblock)
    }

    fn check_checksum(&self) -> Result<()> {
        if !self.has_checksum() {
            return Ok(());
        }
        if self.incompat().contains(JournalIncompat::CSUM) {
            return Err(FormatError::new(STRUCTURE, "s_feature_incompat", "has both csum_v2 and csum_v3"));
        }
        if self.raw.s_checksum_type != CRC32C {
            let problem = format_args!("is {}", self.raw.s_checksum_type);
            return Err(FormatError::new(STRUCTURE, "s_checksum_type", problem));
        }
        let (stored, computed) = (self.raw.s_checksum.get(), self.checksum());
        if stored != computed {
            return Err(FormatError::checksum(STRUCTURE, stored, computed));
        }
        Ok(())
    }

    /// Checks the journal's geometry against a file system with blocks of `block_size` bytes that
    /// keeps `journal_blocks` of them for it.
    ///
    /// # Errors
    /// [`FormatError`] that names the field that does not fit.
    pub fn check(&self, block_size: u32, journal_blocks: u64) -> Result<()> {
        let fail = |field, problem: std::fmt::Arguments<'_>| Err(FormatError::new(STRUCTURE, field, problem));
        let (first, start, maxlen, end) = (self.first(), self.start(), self.maxlen(), self.log_end());
        if self.raw.s_blocksize.get() != block_size {
            return fail("s_blocksize", format_args!("{} is not {block_size}", self.raw.s_blocksize.get()));
        }
        if u64::from(maxlen) > journal_blocks {
            return fail("s_maxlen", format_args!("{maxlen} blocks, but the journal has {journal_blocks}"));
        }
        if first == 0 || first >= maxlen {
            return fail("s_first", format_args!("{first}, in a journal of {maxlen} blocks"));
        }
        // `journal_reset` counts from `s_first`, and the first block of the journal is the
        // superblock.
        if maxlen - first < MIN_BLOCKS - 1 {
            let problem = format_args!(
                "{maxlen} blocks, with the log from block {first}; at least {MIN_BLOCKS} are needed"
            );
            return fail("s_maxlen", problem);
        }
        if end < first.saturating_add(MIN_BLOCKS - 1) {
            return fail("s_num_fc_blocks", format_args!("leaves the log only blocks {first}..{end}"));
        }
        if start != 0 && !(first..end).contains(&start) {
            return fail("s_start", format_args!("{start} is not in {first}..{end}"));
        }
        Ok(())
    }

    /// Returns the number of blocks in the journal, this one included (`s_maxlen`).
    #[must_use]
    pub fn maxlen(&self) -> u32 {
        self.raw.s_maxlen.get()
    }

    /// Returns the block of the journal after the last one of the log: the end of the journal, or
    /// with [`JournalIncompat::FAST_COMMIT`] the block before the area of fast commits.
    #[must_use]
    pub fn log_end(&self) -> u32 {
        match self.incompat().contains(JournalIncompat::FAST_COMMIT) {
            true => self.end_before_fast_commits().unwrap_or(self.maxlen()),
            false => self.maxlen(),
        }
    }

    /// Returns the blocks of the journal that are reserved for fast commits. Empty without
    /// [`JournalIncompat::FAST_COMMIT`].
    #[must_use]
    pub fn fast_commit_blocks(&self) -> std::ops::Range<u32> {
        // As in jbd2, one block after the log is not used.
        self.log_end().saturating_add(1).min(self.maxlen())..self.maxlen()
    }

    /// Returns true if the journal is long enough for a log and the area of fast commits.
    #[must_use]
    pub fn has_room_for_fast_commits(&self) -> bool {
        let log = self.end_before_fast_commits().and_then(|end| end.checked_sub(self.first()));
        log.is_some_and(|blocks| blocks >= MIN_BLOCKS - 1)
    }

    /// Returns the end of a log that leaves room for the area of fast commits, or `None` if jbd2
    /// would not use the area.
    fn end_before_fast_commits(&self) -> Option<u32> {
        let area = match self.raw.s_num_fc_blocks.get() {
            0 => DEFAULT_FAST_COMMIT_BLOCKS,
            blocks => blocks,
        };
        self.maxlen().checked_sub(area).filter(|&end| end >= MIN_BLOCKS)
    }

    /// Returns the first block of the log (`s_first`), in blocks of the journal.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.raw.s_first.get()
    }

    /// Returns the block of the journal at which the oldest transaction starts (`s_start`); 0 if
    /// the log is empty.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.raw.s_start.get()
    }

    /// Returns the sequence number expected at [`Self::start`] (`s_sequence`).
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.raw.s_sequence.get()
    }

    /// Returns the error on record (`s_errno`, a negative errno); 0 if there is none.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.raw.s_errno.get().cast_signed()
    }

    /// Returns the UUIDs of the volumes that use a journal on a device of its own (`s_users`), at
    /// most 48.
    pub fn users(&self) -> impl Iterator<Item = [u8; 16]> + '_ {
        let users = if self.is_version_2() { self.raw.s_nr_users.get() } else { 0 };
        let mut uuids = self.raw.s_users.chunks_exact(16).take(index(users));
        std::iter::from_fn(move || uuids.next()?.first_chunk().copied())
    }

    /// Returns the journal's UUID (`s_uuid`); zeros in version 1, which has none.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        if self.is_version_2() { self.raw.s_uuid } else { [0; 16] }
    }

    /// Returns `s_feature_incompat`, unknown bits included; none in version 1.
    #[must_use]
    pub fn incompat(&self) -> JournalIncompat {
        JournalIncompat::from_bits_retain(self.feature(self.raw.s_feature_incompat))
    }

    /// Returns `s_feature_compat`, unknown bits included; none in version 1.
    #[must_use]
    pub fn compat(&self) -> JournalCompat {
        JournalCompat::from_bits_retain(self.feature(self.raw.s_feature_compat))
    }

    fn feature(&self, field: U32) -> u32 {
        if self.is_version_2() { field.get() } else { 0 }
    }

    fn is_version_2(&self) -> bool {
        self.raw.s_header.h_blocktype.get() == BlockType::SuperblockV2.number()
    }

    /// Returns the name of a feature that is not supported, or `None` if the journal can be used.
    #[must_use]
    pub fn unsupported(&self) -> Option<String> {
        let unknown = self.incompat().difference(JournalIncompat::SUPPORTED);
        let read_only = self.feature(self.raw.s_feature_ro_compat);
        if unknown.is_empty() {
            (read_only != 0).then(|| format!("journal ro_compat {read_only:#x}"))
        } else {
            Some(format!("journal incompat {:#x}", unknown.bits()))
        }
    }

    /// Sets [`Self::start`].
    pub fn set_start(&mut self, start: u32) {
        self.raw.s_start = U32::new(start);
    }

    /// Sets [`Self::sequence`].
    pub fn set_sequence(&mut self, sequence: u32) {
        self.raw.s_sequence = U32::new(sequence);
    }

    /// Sets [`Self::errno`].
    pub fn set_errno(&mut self, errno: i32) {
        self.raw.s_errno = U32::new(errno.cast_unsigned());
    }

    /// Sets [`Self::incompat`]; a superblock of version 1 becomes one of version 2.
    pub fn set_incompat(&mut self, incompat: JournalIncompat) {
        self.upgrade();
        self.raw.s_feature_incompat = U32::new(incompat.bits());
        self.raw.s_checksum_type = if self.has_checksum() { CRC32C } else { 0 };
    }

    /// Makes a superblock of version 1 one of version 2 without features.
    fn upgrade(&mut self) {
        if self.is_version_2() {
            return;
        }
        self.raw.s_header.h_blocktype = U32::new(BlockType::SuperblockV2.number());
        self.raw.s_nr_users = U32::new(1);
    }

    /// Sets [`Self::compat`]. The superblock must have version 2.
    pub fn set_compat(&mut self, compat: JournalCompat) {
        self.raw.s_feature_compat = U32::new(compat.bits());
    }

    /// Sets [`Self::users`]. The superblock must have version 2.
    ///
    /// # Panics
    /// If there are more than 48.
    pub fn set_users(&mut self, users: &[[u8; 16]]) {
        self.raw.s_nr_users = U32::new(saturating_u32(users.len()));
        self.raw.s_users.fill(0);
        self.raw.s_users[..users.as_flattened().len()].copy_from_slice(users.as_flattened());
    }

    /// Sets the number of blocks for fast commits (`s_num_fc_blocks`).
    pub fn set_fast_commit_blocks(&mut self, blocks: u32) {
        self.raw.s_num_fc_blocks = U32::new(blocks);
    }

    /// Sets [`Self::uuid`], from which the seed of all checksums in the journal is computed.
    pub fn set_uuid(&mut self, uuid: &[u8; 16]) {
        self.raw.s_uuid = *uuid;
    }

    /// Returns the seed of the checksums of the journal's blocks.
    #[must_use]
    pub fn checksum_seed(&self) -> u32 {
        crc32c(!0, &self.raw.s_uuid)
    }

    fn has_checksum(&self) -> bool {
        self.incompat().intersects(JournalIncompat::CSUM)
    }

    /// Computes the checksum of the whole superblock, with zeros for the checksum itself.
    fn checksum(&self) -> u32 {
        let bytes = self.raw.as_bytes();
        crc32c(crc32c(crc32c(!0, &bytes[..CHECKSUM]), &[0; 4]), &bytes[CHECKSUM + 4..])
    }

    /// Writes the superblock into the first [`SUPERBLOCK_SIZE`] bytes of `out`, with its checksum.
    ///
    /// # Panics
    /// If `out` is shorter.
    pub fn encode(&self, out: &mut [u8]) {
        out[..SUPERBLOCK_SIZE].copy_from_slice(self.raw.as_bytes());
        if self.has_checksum() {
            out[CHECKSUM..CHECKSUM + 4].copy_from_slice(&self.checksum().to_be_bytes());
        }
    }
}

//! Commit blocks: the last block of a transaction.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockType, RawHeader, TagFormat, expect_type, raw_header};
use crate::checksum::crc32c;
use crate::{FormatError, Result};

const STRUCTURE: &str = "journal commit block";
/// Offset of `h_chksum[0]`.
const CHECKSUM: usize = 0x10;
/// `JBD2_CRC32_CHKSUM` and its size in bytes.
const CRC32: (u8, u8) = (1, 4);

/// `struct commit_header`
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCommit {
    header: RawHeader,
    h_chksum_type: u8,
    h_chksum_size: u8,
    h_padding: [u8; 2],
    h_chksum: [U32; 8],
    h_commit_sec: U64,
    h_commit_nsec: U32,
}

fn raw_commit(block: &[u8]) -> Option<&RawCommit> {
    RawCommit::ref_from_prefix(block).ok().map(|(raw, _)| raw)
}

/// Writes a commit block with the time of the commit. With checksums (v2, v3) seals it; `seed` is
/// the journal's.
///
/// # Panics
/// If `out` is shorter than 60 bytes.
pub fn encode_commit(out: &mut [u8], format: TagFormat, sequence: u32, seed: u32, seconds: u64, nanos: u32) {
    let raw = RawCommit {
        header: raw_header(BlockType::Commit, sequence),
        h_chksum_type: 0,
        h_chksum_size: 0,
        h_padding: [0; 2],
        h_chksum: [U32::ZERO; 8],
        h_commit_sec: U64::new(seconds),
        h_commit_nsec: U32::new(nanos),
    };
    out.fill(0);
    out[..size_of::<RawCommit>()].copy_from_slice(raw.as_bytes());
    if format.has_checksums() {
        let computed = crc32c(seed, out);
        out[CHECKSUM..CHECKSUM + 4].copy_from_slice(&computed.to_be_bytes());
    }
}

/// Verifies the checksum (v2, v3) of a commit block; `seed` is the journal's.
///
/// As Linux does (`jbd2_commit_block_csum_verify_partial`), accepts a block of which a crash left
/// only the first sector: the rest holds old bytes, and was to be zeros.
///
/// # Errors
/// [`FormatError`] if the block is no commit block, or the checksum is wrong.
pub fn verify_commit(seed: u32, block: &[u8]) -> Result<()> {
    expect_type(STRUCTURE, block, BlockType::Commit)?;
    let raw =
        raw_commit(block).ok_or_else(|| FormatError::new(STRUCTURE, "h_chksum", "the block is too short"))?;
    let (header, rest) = block.split_at(size_of::<RawCommit>());
    let before = crc32c(crc32c(crc32c(seed, &header[..CHECKSUM]), &[0; 4]), &header[CHECKSUM + 4..]);
    let (stored, computed) = (raw.h_chksum[0].get(), crc32c(before, rest));
    if stored != computed && stored != crc32c(before, &vec![0; rest.len()]) {
        return Err(FormatError::checksum(STRUCTURE, stored, computed));
    }
    Ok(())
}

/// Returns the time of the commit: seconds and nanoseconds since 1970.
#[must_use]
pub fn commit_time(block: &[u8]) -> Option<(u64, u32)> {
    raw_commit(block).map(|raw| (raw.h_commit_sec.get(), raw.h_commit_nsec.get()))
}

/// Returns true if `crc32` is the checksum of the transaction's blocks
/// ([`JournalCompat::CHECKSUM`](super::JournalCompat::CHECKSUM)), or the commit block has none. The
/// checksum is the [`crc32_be`] of the transaction's descriptor and data blocks in log order, from
/// `!0`.
#[must_use]
pub fn commit_crc32_matches(block: &[u8], crc32: u32) -> bool {
    raw_commit(block).is_some_and(|raw| {
        let stored = raw.h_chksum[0].get();
        match (raw.h_chksum_type, raw.h_chksum_size) {
            CRC32 => stored == crc32,
            (0, 0) => stored == 0,
            _ => false,
        }
    })
}

/// Computes the kernel's `crc32_be`, continuing from `seed`: CRC-32 with the most significant bit
/// first, without final inversion.
#[must_use]
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    static BIG_ENDIAN: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_MPEG_2);
    let mut digest = BIG_ENDIAN.digest_with_initial(seed);
    digest.update(bytes);
    digest.finalize()
}

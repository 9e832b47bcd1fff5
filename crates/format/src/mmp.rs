//! The block of multi-mount protection (feature `mmp`): the name of the machine that uses the
//! volume, and a number that this machine changes at intervals.
//!
//! This module parses and encodes the block, and computes the waits that its fields ask for. It
//! does no I/O and does not decide whether a volume may be used.
//!
//! Source: kernel documentation, "Multiple Mount Protection", whose field names are kept.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FormatError, Result};
use crate::{ChecksumSeed, FsBlock};

/// `mmp_seq` of a volume that no machine uses.
pub const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
/// `mmp_seq` while e2fsck checks the volume.
pub const SEQUENCE_FSCK: u32 = 0xe24d_4d50;
/// The largest `mmp_seq` of a volume that is mounted.
pub const SEQUENCE_MAX: u32 = 0xe24d_4d4f;

/// The update interval of new volumes, in seconds.
pub const DEFAULT_UPDATE_INTERVAL: u16 = 5;
/// The longest update interval, in seconds.
pub const MAX_UPDATE_INTERVAL: u16 = 300;

/// `mmp_magic`
const MAGIC: u32 = 0x004d_4d50;
/// Ratio of a check interval to the duration of the last update.
const CHECK_FACTOR: u64 = 2;
/// The shortest check interval, in seconds.
const MIN_CHECK_INTERVAL: u16 = 5;
/// The longest check interval that results from slow updates, in seconds.
const MAX_CHECK_INTERVAL: u16 = 300;
const STRUCTURE: &str = "mmp block";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMmp {
    mmp_magic: U32,
    mmp_seq: U32,
    mmp_time: U64,
    mmp_nodename: [u8; 64],
    mmp_bdevname: [u8; 32],
    mmp_check_interval: U16,
    mmp_pad1: U16,
    mmp_pad2: [U32; 226],
    mmp_checksum: U32,
}

const _: () = assert!(size_of::<RawMmp>() == Mmp::SIZE);
const CHECKSUM_OFFSET: usize = std::mem::offset_of!(RawMmp, mmp_checksum);

/// The contents of the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mmp {
    /// [`SEQUENCE_CLEAN`], [`SEQUENCE_FSCK`], or a number that changes with each update.
    pub sequence: u32,
    /// Time of the last update, in seconds since 1970.
    pub time: u64,
    /// Name of the machine that wrote the block last, padded with zeros.
    pub node: [u8; 64],
    /// Name that this machine has for the device, padded with zeros.
    pub device: [u8; 32],
    /// Time after which the user checks that the block is still its own, in seconds.
    pub check_interval: u16,
}

impl Mmp {
    /// Bytes of the structure, at the start of its block.
    pub const SIZE: usize = 1024;

    /// Returns the block of a new volume with this update interval in seconds, which no machine
    /// uses.
    #[must_use]
    pub fn clean(update_interval: u16) -> Self {
        let check_interval = update_interval.max(MIN_CHECK_INTERVAL);
        Self { sequence: SEQUENCE_CLEAN, time: 0, node: [0; 64], device: [0; 32], check_interval }
    }

    /// Parses block `number` of the volume. With a seed (of the volume), verifies the checksum.
    ///
    /// # Errors
    /// Names the field that is wrong, and the block.
    pub fn parse(bytes: &[u8], seed: Option<ChecksumSeed>, number: FsBlock) -> Result<Self> {
        let parsed = Self::parse_fields(bytes, seed);
        parsed.map_err(|error| error.in_block(number))
    }

    fn parse_fields(bytes: &[u8], seed: Option<ChecksumSeed>) -> Result<Self> {
        let Ok((raw, _)) = RawMmp::ref_from_prefix(bytes) else {
            return Err(FormatError::new(STRUCTURE, "size", format_args!("{} bytes", bytes.len())));
        };
        let magic = raw.mmp_magic.get();
        if magic != MAGIC {
            return Err(FormatError::new(STRUCTURE, "mmp_magic", format_args!("{magic:#010x}")));
        }
        if let Some(seed) = seed {
            let (stored, computed) = (raw.mmp_checksum.get(), seed.of(&bytes[..CHECKSUM_OFFSET]));
            if stored != computed {
                return Err(FormatError::checksum(STRUCTURE, stored, computed));
            }
        }
        Ok(Self {
            sequence: raw.mmp_seq.get(),
            time: raw.mmp_time.get(),
            node: raw.mmp_nodename,
            device: raw.mmp_bdevname,
            check_interval: raw.mmp_check_interval.get(),
        })
    }

    /// Writes the structure to the start of `out`, with a checksum if there is a seed. Leaves later
    /// bytes alone.
    ///
    /// # Panics
    /// If `out` is shorter than [`Self::SIZE`].
    pub fn encode(&self, out: &mut [u8], seed: Option<ChecksumSeed>) {
        let raw = RawMmp {
            mmp_magic: MAGIC.into(),
            mmp_seq: self.sequence.into(),
            mmp_time: self.time.into(),
            mmp_nodename: self.node,
            mmp_bdevname: self.device,
            mmp_check_interval: self.check_interval.into(),
            mmp_pad1: U16::ZERO,
            mmp_pad2: [U32::ZERO; 226],
            mmp_checksum: U32::ZERO,
        };
        let out = &mut out[..Self::SIZE];
        out.copy_from_slice(raw.as_bytes());
        if let Some(seed) = seed {
            let checksum = seed.of(&out[..CHECKSUM_OFFSET]);
            out[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Returns the time in seconds for which the block must not change before another machine may
    /// use the volume, at most 660. `update_interval` is the superblock's.
    #[must_use]
    pub fn wait(&self, update_interval: u16) -> u64 {
        // The kernel begins with a check interval of twice the update interval. No user writes a
        // longer one.
        let written = self.check_interval.min(2 * MAX_UPDATE_INTERVAL);
        let check = u64::from(update_interval.max(MIN_CHECK_INTERVAL).max(written));
        (2 * check + 1).min(check + 60)
    }
}

/// Returns the check interval with which a user of the volume begins, in seconds.
#[must_use]
pub fn first_check_interval(update_interval: u16) -> u16 {
    check_interval_after(update_interval.into())
}

/// Returns the check interval after an update that took this many seconds, including the time up to
/// the next update.
#[must_use]
pub fn check_interval_after(seconds: u64) -> u16 {
    let interval = seconds.saturating_mul(CHECK_FACTOR);
    let most = MAX_CHECK_INTERVAL;
    u16::try_from(interval).map_or(most, |interval| interval.clamp(MIN_CHECK_INTERVAL, most))
}

/// Copies a name into a field, truncated or padded with zeros.
#[must_use]
pub fn name_field<const N: usize>(name: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    field
}

/// Returns the name in a field, without padding; bytes that are not UTF-8 are replaced.
#[must_use]
pub fn name_of(field: &[u8]) -> String {
    let name = field.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Mmp {
        let (node, device) = (name_field(b"host"), name_field(b"loop0"));
        Mmp { sequence: 7, time: 1 << 33, node, device, check_interval: 10 }
    }

    #[test]
    fn a_block_is_read_as_it_was_written() {
        let mut bytes = [0xff; 2048];
        let seed = Some(ChecksumSeed(5));
        block().encode(&mut bytes, seed);
        assert_eq!(Mmp::parse(&bytes, seed, FsBlock(9)), Ok(block()));
        assert_eq!(Mmp::parse(&bytes, None, FsBlock(9)), Ok(block()));
        assert_eq!((name_of(&block().node), name_of(&[0xff])), ("host".into(), "\u{fffd}".into()));
        assert!(bytes[1024..].iter().all(|&byte| byte == 0xff), "the rest of the block is kept");
    }

    #[test]
    fn damage_is_named() {
        let mut bytes = [0; 1024];
        let seed = Some(ChecksumSeed(5));
        assert_eq!(Mmp::parse(&bytes, seed, FsBlock(9)).unwrap_err().field, "mmp_magic");
        block().encode(&mut bytes, seed);
        bytes[4] ^= 1;
        let error = Mmp::parse(&bytes, seed, FsBlock(9)).unwrap_err();
        assert_eq!((error.field, error.block), ("checksum", Some(FsBlock(9))));
        assert_eq!(Mmp::parse(&bytes[..1023], None, FsBlock(9)).unwrap_err().field, "size");
    }

    #[test]
    fn waits_are_the_kernels() {
        let waits = |update, check_interval| Mmp { check_interval, ..block() }.wait(update);
        assert_eq!([waits(1, 0), waits(5, 10), waits(20, 5), waits(5, 59)], [11, 21, 41, 119]);
        assert_eq!([waits(300, 0), waits(1, u16::MAX)], [360, 660]);
        let intervals = [0, 2, 5, 20, 1000, u64::MAX].map(check_interval_after);
        assert_eq!(intervals, [5, 5, 10, 40, 300, 300]);
    }
}

//! The bytes that an operation writes.

use crate::sector::{self, SECTOR, Stamp};

/// What an operation writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nonzero bytes that differ by offset and by this number.
    Pattern(u64),
    /// This byte.
    Byte(u8),
    /// Sectors that name the operation and their number in the file.
    Stamp(Stamp),
    /// Sectors that name the operation and their number within it, as the offset of an append is
    /// not known before, and as sectors move with the data after them.
    Movable(Stamp),
}

impl Content {
    /// Fills a buffer that is written at `offset`.
    ///
    /// # Panics
    /// If the content is of sectors, and the buffer is not.
    pub fn fill(self, bytes: &mut [u8], offset: u64) {
        match self {
            Self::Pattern(nth) => {
                for (at, byte) in (0..).zip(bytes) {
                    *byte = u8::try_from((nth * 31 + at / 512 * 7 + at) % 251).expect("less than 251") + 1;
                }
            }
            Self::Byte(byte) => bytes.fill(byte),
            Self::Stamp(stamp) => sector::fill(bytes, offset / SECTOR as u64, stamp),
            Self::Movable(stamp) => sector::fill_append(bytes, stamp),
        }
    }

    /// Returns `len` bytes to write at `offset`.
    pub fn bytes(self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; index(len)];
        self.fill(&mut bytes, offset);
        bytes
    }
}

impl Content {
    /// Returns a byte of it, for owners and permissions.
    pub fn byte(self) -> u8 {
        let number = match self {
            Self::Byte(byte) => return byte,
            Self::Pattern(number) => number,
            Self::Stamp(stamp) | Self::Movable(stamp) => stamp.sequence,
        };
        u8::try_from(number % 256).expect("less than 256")
    }

    /// Returns the value of an attribute.
    pub fn value(self, len: usize) -> Vec<u8> {
        match self {
            Self::Pattern(_) => self.bytes(0, len as u64),
            Self::Byte(_) | Self::Stamp(_) | Self::Movable(_) => vec![self.byte(); len],
        }
    }
}

/// Returns an offset or length as an index into memory.
///
/// # Panics
/// If the address space is too small.
pub fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("files of tests fit in memory")
}

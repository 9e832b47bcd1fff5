//! Reads the record of errors that a superblock keeps until e2fsck has repaired the volume.

use std::fmt;

use parext4_format::superblock::{STATE_ERROR, Superblock};

/// Errors found in a volume, as its superblock records them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedErrors {
    /// Number of errors found; 0 if the superblock states only that there were errors.
    pub count: u32,
    /// The first error.
    pub first: RecordedError,
    /// The last error.
    pub last: RecordedError,
}

/// A recorded error. Fields that the superblock does not state are zero or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedError {
    /// Time at which the error was found, in seconds since 1970.
    pub seconds: i64,
    /// The function that found the error, or the check that failed.
    pub function: String,
    /// The source line that found the error.
    pub line: u32,
    /// Number of the affected inode.
    pub inode: u32,
    /// Number of the affected block.
    pub block: u64,
}

impl RecordedErrors {
    /// Returns the errors that a superblock records; `None` if it records none.
    pub(super) fn of(superblock: &Superblock) -> Option<Self> {
        let raw = superblock.raw();
        let count = raw.s_error_count.get();
        if count == 0 && superblock.state() & STATE_ERROR == 0 {
            return None;
        }
        let first = RecordedError {
            seconds: seconds(raw.s_first_error_time.get(), raw.s_first_error_time_hi),
            function: text(&raw.s_first_error_func),
            line: raw.s_first_error_line.get(),
            inode: raw.s_first_error_ino.get(),
            block: raw.s_first_error_block.get(),
        };
        let last = RecordedError {
            seconds: seconds(raw.s_last_error_time.get(), raw.s_last_error_time_hi),
            function: text(&raw.s_last_error_func),
            line: raw.s_last_error_line.get(),
            inode: raw.s_last_error_ino.get(),
            block: raw.s_last_error_block.get(),
        };
        Some(Self { count, first, last })
    }
}

impl fmt::Display for RecordedError {
    /// Describes the error without its time, as `ext4_find_extent:944, inode 12, block 8962`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = if self.function.is_empty() { "unknown function" } else { &self.function };
        write!(f, "{}", function.escape_debug())?;
        if self.line != 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.inode != 0 {
            write!(f, ", inode {}", self.inode)?;
        }
        if self.block != 0 {
            write!(f, ", block {}", self.block)?;
        }
        Ok(())
    }
}

fn seconds(low: u32, high: u8) -> i64 {
    i64::from(high) << 32 | i64::from(low)
}

/// Returns the text of a field that is padded with zeros.
fn text(field: &[u8]) -> String {
    let len = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..len]).into_owned()
}

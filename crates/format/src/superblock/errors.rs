//! The record of errors found in the volume, which the superblock keeps until e2fsck has repaired
//! them.

use super::upkeep::split_time;
use super::{RawSuperblock, STATE_ERROR, Superblock};

/// `s_last_error_errcode`: the device failed (`EXT4_ERR_EIO`).
pub const ERROR_IO: u8 = 2;
/// `s_last_error_errcode`: a structure fails a check (`EXT4_ERR_EFSCORRUPTED`).
pub const ERROR_CORRUPTED: u8 = 5;

/// One error on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord<'a> {
    /// The time at which the error was found, in seconds since 1970.
    pub seconds: i64,
    /// The check that found the error, truncated to 31 bytes.
    pub function: &'a str,
    /// The line of the source that found the error.
    pub line: u32,
    /// The inode concerned, or 0.
    pub inode: u32,
    /// The block concerned, or 0.
    pub block: u64,
    /// The kind of error: [`ERROR_IO`], [`ERROR_CORRUPTED`].
    pub code: u8,
}

/// Errors found in the volume.
impl Superblock {
    /// Returns the number of errors on record.
    #[must_use]
    pub fn error_count(&self) -> u32 {
        self.raw.s_error_count.get()
    }

    /// Records errors: their number, the first one unless an earlier one is on record, and the last
    /// one. Sets the flag for errors in the volume's state.
    pub fn record_errors(&mut self, count: u32, first: &ErrorRecord<'_>, last: &ErrorRecord<'_>) {
        let raw = &mut self.raw;
        raw.s_state.set(raw.s_state.get() | STATE_ERROR);
        raw.s_error_count.set(count);
        if raw.s_first_error_time.get() == 0 && raw.s_first_error_time_hi == 0 {
            let (low, high) = split_time(first.seconds);
            raw.s_first_error_time.set(low);
            raw.s_first_error_time_hi = high;
            raw.s_first_error_ino.set(first.inode);
            raw.s_first_error_block.set(first.block);
            raw.s_first_error_func = padded(first.function);
            raw.s_first_error_line.set(first.line);
            raw.s_first_error_errcode = first.code;
        }
        let (low, high) = split_time(last.seconds);
        raw.s_last_error_time.set(low);
        raw.s_last_error_time_hi = high;
        raw.s_last_error_ino.set(last.inode);
        raw.s_last_error_block.set(last.block);
        raw.s_last_error_func = padded(last.function);
        raw.s_last_error_line.set(last.line);
        raw.s_last_error_errcode = last.code;
    }

    /// Copies the record of `other`, another version of the superblock, if it counts more errors.
    /// Returns true if it did.
    pub fn keep_errors_of(&mut self, other: &Self) -> bool {
        let (to, from) = (&mut self.raw, &other.raw);
        let state = to.s_state.get() | from.s_state.get() & STATE_ERROR;
        let has_more = from.s_error_count.get() > to.s_error_count.get();
        let changes = has_more || state != to.s_state.get();
        to.s_state.set(state);
        if has_more {
            copy_errors(to, from);
        }
        changes
    }
}

fn copy_errors(to: &mut RawSuperblock, from: &RawSuperblock) {
    to.s_error_count = from.s_error_count;
    to.s_first_error_time = from.s_first_error_time;
    to.s_first_error_time_hi = from.s_first_error_time_hi;
    to.s_first_error_ino = from.s_first_error_ino;
    to.s_first_error_block = from.s_first_error_block;
    to.s_first_error_func = from.s_first_error_func;
    to.s_first_error_line = from.s_first_error_line;
    to.s_first_error_errcode = from.s_first_error_errcode;
    to.s_last_error_time = from.s_last_error_time;
    to.s_last_error_time_hi = from.s_last_error_time_hi;
    to.s_last_error_ino = from.s_last_error_ino;
    to.s_last_error_block = from.s_last_error_block;
    to.s_last_error_func = from.s_last_error_func;
    to.s_last_error_line = from.s_last_error_line;
    to.s_last_error_errcode = from.s_last_error_errcode;
}

/// Pads a text to the size of its field; at least one zero ends it.
fn padded(text: &str) -> [u8; 32] {
    let mut field = [0; 32];
    let len = text.len().min(field.len() - 1);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

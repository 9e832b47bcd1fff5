//! The expected contents of one file, for tests that compare it with the file after random
//! operations.

use crate::file_op::{Op, Shape};

/// The expected contents of a file, in memory.
#[derive(Clone, Debug, Default)]
pub struct FileModel {
    bytes: Vec<u8>,
}

impl FileModel {
    /// Returns the expected size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the properties on which the choice of the next operation depends.
    pub fn shape(&self, block: u64) -> Shape {
        Shape { size: self.size(), block }
    }

    /// Stores what was written at `offset`.
    pub fn store(&mut self, offset: u64, data: &[u8]) {
        let end = index(offset) + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[index(offset)..end].copy_from_slice(data);
    }

    /// Applies an operation that changes the file without new data; no other operation has an
    /// effect.
    pub fn apply(&mut self, op: Op) {
        match op {
            Op::SetLen { size } => self.bytes.resize(index(size), 0),
            Op::Allocate { offset, len, keep_size } => self.extend(offset + len, keep_size),
            Op::PunchHole { offset, len } => self.zero(offset, len),
            Op::ZeroRange { offset, len, keep_size } => {
                self.extend(offset + len, keep_size);
                self.zero(offset, len);
            }
            Op::CollapseRange { offset, len } => drop(self.bytes.drain(index(offset)..index(offset + len))),
            Op::InsertRange { offset, len } => {
                let zeros = std::iter::repeat_n(0, index(len));
                self.bytes.splice(index(offset)..index(offset), zeros);
            }
            Op::Read { .. } | Op::Write { .. } | Op::Append { .. } | Op::Seek { .. } => {}
            Op::SyncRange { .. } | Op::SyncData { .. } | Op::SyncAll { .. } => {}
        }
    }

    /// Compares the result of a read of `len` bytes at `offset`, which ends early at the end of the
    /// file.
    ///
    /// # Errors
    /// A description of the first difference.
    pub fn compare(&self, seen: &[u8], offset: u64, len: u64) -> Result<(), String> {
        let start = index(offset).min(self.bytes.len());
        let want = &self.bytes[start..index(offset + len).clamp(start, self.bytes.len())];
        if seen.len() != want.len() {
            return Err(format!("{} bytes at {offset}, not {}", seen.len(), want.len()));
        }
        match seen.iter().zip(want).position(|(seen, want)| seen != want) {
            Some(at) => Err(format!("byte {} is {:#x}, not {:#x}", start + at, seen[at], want[at])),
            None => Ok(()),
        }
    }

    /// Checks that there is no data from `offset` on.
    ///
    /// # Errors
    /// A description of what is wrong.
    pub fn check_no_data(&self, offset: u64) -> Result<(), String> {
        let rest = &self.bytes[index(offset.min(self.size()))..];
        if rest.iter().any(|&byte| byte != 0) { Err(format!("no data from {offset} on")) } else { Ok(()) }
    }

    /// Checks that the first data from `offset` on is at `data`, and the first hole after that at
    /// `hole`: both within the file, with nothing but zeros before the data.
    ///
    /// # Errors
    /// A description of what is wrong.
    pub fn check_data_and_hole(&self, offset: u64, data: u64, hole: u64) -> Result<(), String> {
        let size = self.size();
        if data < offset
            || data >= size
            || self.bytes[index(offset)..index(data)].iter().any(|&byte| byte != 0)
        {
            return Err(format!("data from {offset} on is at {data}"));
        }
        if hole <= data || hole > size {
            return Err(format!("data at {data}, and a hole at {hole}"));
        }
        Ok(())
    }

    fn extend(&mut self, end: u64, keep_size: bool) {
        if !keep_size {
            self.bytes.resize(self.bytes.len().max(index(end)), 0);
        }
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let size = self.bytes.len();
        self.bytes[index(offset).min(size)..index(offset + len).min(size)].fill(0);
    }
}

/// Fills a buffer with nonzero bytes that differ by offset and by the number of the operation.
pub fn fill(bytes: &mut [u8], nth: u64) {
    for (at, byte) in (0..).zip(bytes) {
        *byte = u8::try_from((nth * 31 + at / 512 * 7 + at) % 251).expect("less than 251") + 1;
    }
}

/// Returns an offset or length as an index into memory.
///
/// # Panics
/// If the address space is too small.
pub fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("files of tests fit in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_change_the_contents_as_they_do_a_file() {
        let mut model = FileModel::default();
        model.store(2, &[1, 2, 3, 4]);
        model.apply(Op::PunchHole { offset: 3, len: 1 });
        model.apply(Op::Allocate { offset: 0, len: 8, keep_size: true });
        model.apply(Op::InsertRange { offset: 2, len: 2 });
        model.apply(Op::CollapseRange { offset: 0, len: 1 });
        model.apply(Op::ZeroRange { offset: 6, len: 3, keep_size: false });
        assert_eq!(model.bytes, [0, 0, 0, 1, 0, 3, 0, 0, 0]);
        model.apply(Op::SetLen { size: 5 });
        assert_eq!(model.size(), 5);
    }

    #[test]
    fn differences_are_reported() {
        let mut model = FileModel::default();
        model.store(4, &[7, 8]);
        assert_eq!(model.compare(&[7, 8], 4, 10), Ok(()));
        assert_eq!(model.compare(&[7], 4, 2), Err("1 bytes at 4, not 2".into()));
        assert_eq!(model.compare(&[7, 9], 4, 2), Err("byte 5 is 0x9, not 0x8".into()));
        assert!(model.check_no_data(4).is_err() && model.check_no_data(6).is_ok());
        assert_eq!(model.check_data_and_hole(0, 4, 6), Ok(()));
        assert!(model.check_data_and_hole(0, 5, 6).is_err(), "data before it");
        assert!(model.check_data_and_hole(0, 4, 7).is_err(), "a hole past the end");
    }
}

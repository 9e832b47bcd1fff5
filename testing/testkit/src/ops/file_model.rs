//! The expected contents of one file, for tests that compare it with the file after random
//! operations.

use super::content::{Content, index};
use super::file_op::{FileOp, Outcome};
use super::file_ops::Shape;
use super::written_blocks::WrittenBlocks;

/// The expected contents of a file, in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileModel {
    bytes: Vec<u8>,
    /// If every write goes to the device at once.
    blocks: Option<WrittenBlocks>,
}

impl FileModel {
    /// Returns the model of an empty file with blocks of `block` bytes that is written only
    /// directly. It also says which blocks are written.
    pub fn with_blocks(block: u64) -> Self {
        Self { bytes: Vec::new(), blocks: Some(WrittenBlocks::new(block)) }
    }

    /// Returns the model of a file that was found with these contents.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, blocks: None }
    }

    /// Returns the expected size in bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the properties on which the choice of the next operation depends.
    pub fn shape(&self, block: u64) -> Shape {
        Shape { size: self.size(), block }
    }

    /// Returns the expected contents.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the ranges of bytes that are written.
    ///
    /// # Panics
    /// If the model does not know the blocks.
    pub fn data(&self) -> Vec<(u64, u64)> {
        self.blocks.as_ref().expect("a model with blocks").ranges(self.size())
    }

    /// Applies an operation that has succeeded, and compares what it returned.
    ///
    /// # Errors
    /// A description of the first difference.
    pub fn follow(&mut self, op: FileOp, content: Content, outcome: &Outcome) -> Result<(), String> {
        let size = self.size();
        match (op, outcome) {
            (FileOp::Read { offset, len, .. }, Outcome::Read(seen)) => self.compare(seen, offset, len)?,
            (FileOp::Seek { offset }, Outcome::Found(None)) => self.check_no_data(offset)?,
            (FileOp::Seek { offset }, Outcome::Found(Some((data, hole)))) => {
                self.check_data_and_hole(offset, *data, *hole)?;
            }
            (FileOp::Append { .. }, Outcome::Appended(at)) if *at == size => {}
            (FileOp::Read { .. } | FileOp::Seek { .. } | FileOp::Append { .. }, outcome) => {
                return Err(format!("the outcome of {op:?} is {outcome:?}, with {size} bytes before"));
            }
            _ => {}
        }
        self.apply(op, content);
        Ok(())
    }

    /// Applies an operation that writes `content`.
    pub fn apply(&mut self, op: FileOp, content: Content) {
        let size = self.size();
        match op {
            FileOp::Write { .. } | FileOp::Append { .. } => {
                let range = op.written(size).expect("it writes");
                self.extend(range.end, false);
                content.fill(&mut self.bytes[index(range.start)..index(range.end)], range.start);
            }
            FileOp::SetLen { size } => self.bytes.resize(index(size), 0),
            FileOp::Allocate { offset, len, keep_size } => self.extend(offset + len, keep_size),
            FileOp::PunchHole { offset, len } => self.zero(offset, len),
            FileOp::ZeroRange { offset, len, keep_size } => {
                self.extend(offset + len, keep_size);
                self.zero(offset, len);
            }
            FileOp::CollapseRange { offset, len } => {
                drop(self.bytes.drain(index(offset)..index(offset + len)));
            }
            FileOp::InsertRange { offset, len } => {
                let zeros = std::iter::repeat_n(0, index(len));
                self.bytes.splice(index(offset)..index(offset), zeros);
            }
            FileOp::Read { .. } | FileOp::Seek { .. } => {}
            FileOp::SyncRange { .. } | FileOp::SyncData { .. } | FileOp::SyncAll { .. } => {}
        }
        let new_size = self.size();
        if let Some(blocks) = &mut self.blocks {
            blocks.apply(op, size, new_size);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Way;

    fn write(offset: u64, len: u64) -> FileOp {
        FileOp::Write { way: Way::Direct, offset, len }
    }

    #[test]
    fn operations_change_the_contents_as_they_do_a_file() {
        let mut model = FileModel::default();
        let mut apply = |op| model.apply(op, Content::Byte(7));
        apply(write(2, 4));
        apply(FileOp::PunchHole { offset: 3, len: 1 });
        apply(FileOp::Allocate { offset: 0, len: 8, keep_size: true });
        apply(FileOp::InsertRange { offset: 2, len: 2 });
        apply(FileOp::CollapseRange { offset: 0, len: 1 });
        apply(FileOp::ZeroRange { offset: 6, len: 3, keep_size: false });
        assert_eq!(model.bytes, [0, 0, 0, 7, 0, 7, 0, 0, 0]);
        model.apply(FileOp::SetLen { size: 5 }, Content::Byte(7));
        model.apply(FileOp::Append { way: Way::Buffered, len: 2 }, Content::Byte(8));
        assert_eq!(model.bytes, [0, 0, 0, 7, 0, 8, 8]);
    }

    #[test]
    fn written_blocks_are_data() {
        let mut model = FileModel::with_blocks(1024);
        let mut apply = |op| {
            model.apply(op, Content::Byte(7));
            model.data()
        };
        assert_eq!(apply(write(512, 3000)), [(0, 3512)]);
        assert_eq!(apply(FileOp::PunchHole { offset: 1000, len: 1100 }), [(0, 1024), (2048, 3512)]);
        assert_eq!(apply(FileOp::InsertRange { offset: 0, len: 1024 }), [(1024, 2048), (3072, 4536)]);
        assert_eq!(apply(FileOp::PunchHole { offset: 4096, len: 500 }), [(1024, 2048), (3072, 4096)]);
        assert_eq!(apply(FileOp::CollapseRange { offset: 0, len: 2048 }), [(1024, 2048)]);
        assert_eq!(apply(FileOp::SetLen { size: 5000 }), [(1024, 2048)]);
        assert_eq!(apply(FileOp::ZeroRange { offset: 1025, len: 1023, keep_size: true }), [(1024, 2048)]);
    }

    #[test]
    fn differences_are_reported() {
        let mut model = FileModel::default();
        model.apply(write(4, 2), Content::Byte(7));
        assert_eq!(model.compare(&[7, 7], 4, 10), Ok(()));
        assert_eq!(model.compare(&[7], 4, 2), Err("1 bytes at 4, not 2".into()));
        assert_eq!(model.compare(&[7, 9], 4, 2), Err("byte 5 is 0x9, not 0x7".into()));
        assert!(model.check_no_data(4).is_err() && model.check_no_data(6).is_ok());
        assert_eq!(model.check_data_and_hole(0, 4, 6), Ok(()));
        assert!(model.check_data_and_hole(0, 5, 6).is_err(), "data before it");
        assert!(model.check_data_and_hole(0, 4, 7).is_err(), "a hole past the end");
        let append = FileOp::Append { way: Way::Direct, len: 1 };
        assert!(model.follow(append, Content::Byte(1), &Outcome::Appended(5)).is_err());
        assert!(model.follow(append, Content::Byte(1), &Outcome::Appended(6)).is_ok());
    }
}

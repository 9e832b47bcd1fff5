//! The expected contents of a file: its bytes, and which of its blocks are written.

use parext4::{DirectFile, Error, FileSize};

use testkit::rng::Rng;
use testkit::sector::SECTOR;

/// A change of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes sectors full of a byte.
    Write {
        offset: u64,
        len: u64,
        byte: u8,
    },
    Punch {
        offset: u64,
        len: u64,
    },
    Zero {
        offset: u64,
        len: u64,
        keep_size: bool,
    },
    Collapse {
        offset: u64,
        len: u64,
    },
    Insert {
        offset: u64,
        len: u64,
    },
    SetLen {
        size: u64,
    },
    Allocate {
        offset: u64,
        len: u64,
        keep_size: bool,
    },
}

impl Change {
    /// Returns a change of a file of `size` bytes, within about its first `span` blocks. A collapse
    /// or an insertion is one that the file accepts.
    pub fn random(rng: &mut Rng, block: u64, size: u64, span: u64) -> Self {
        let bytes = span * block;
        let (offset, keep_size) = (rng.below(bytes), rng.chance(50));
        let len = rng.log_uniform(bytes / 2);
        let blocks = size / block;
        match rng.below(100) {
            0..35 => {
                let sector = SECTOR as u64;
                let byte = 1 + u8::try_from(rng.below(255)).unwrap();
                let (offset, len) = (offset / sector * sector, len.div_ceil(sector) * sector);
                Self::Write { offset, len: len.min(32 * block), byte }
            }
            35..55 => Self::Punch { offset, len },
            55..67 => Self::Zero { offset, len, keep_size },
            67..77 if blocks > 1 => {
                let first = rng.below(blocks - 1);
                let most = size.div_ceil(block) - 1 - first;
                Self::Collapse { offset: first * block, len: rng.log_uniform(most) * block }
            }
            77..87 if blocks > 0 && size < 2 * bytes => {
                Self::Insert { offset: rng.below(blocks) * block, len: rng.log_uniform(span / 4) * block }
            }
            87..93 => Self::SetLen { size: offset },
            _ => Self::Allocate { offset, len, keep_size },
        }
    }

    /// Applies the change to a file.
    pub fn make(self, file: &DirectFile) -> Result<(), Error> {
        match self {
            Self::Write { offset, len, byte } => {
                file.write_all_at(&vec![byte; usize::try_from(len).unwrap()], offset)
            }
            Self::Punch { offset, len } => file.punch_hole(offset..offset + len),
            Self::Zero { offset, len, keep_size } => {
                file.zero_range(offset..offset + len, FileSize::kept_if(keep_size))
            }
            Self::Collapse { offset, len } => file.collapse_range(offset..offset + len),
            Self::Insert { offset, len } => file.insert_range(offset..offset + len),
            Self::SetLen { size } => file.set_len(size),
            Self::Allocate { offset, len, keep_size } => {
                file.allocate(offset..offset + len, FileSize::kept_if(keep_size))
            }
        }
    }
}

/// The model.
#[derive(Clone, Debug)]
pub struct Model {
    pub block: usize,
    pub bytes: Vec<u8>,
    /// By block.
    written: Vec<bool>,
}

impl Model {
    pub fn new(block: usize) -> Self {
        Self { block, bytes: Vec::new(), written: Vec::new() }
    }

    fn resize(&mut self, size: usize) {
        self.bytes.resize(size, 0);
        self.written.resize(size.div_ceil(self.block), false);
    }

    fn reach(&mut self, end: usize) {
        self.resize(self.bytes.len().max(end));
    }

    /// Zeroes the part of `[offset, end)` within the file, and marks its whole blocks as unwritten.
    fn zero(&mut self, offset: usize, end: usize) {
        let (size, blocks) = (self.bytes.len(), self.written.len());
        self.bytes[offset.min(size)..end.min(size)].fill(0);
        let whole = offset.div_ceil(self.block)..blocks.min(end / self.block);
        self.written.get_mut(whole).unwrap_or_default().fill(false);
    }

    pub fn make(&mut self, change: Change) {
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let blocks = |bytes: usize| bytes / self.block;
        match change {
            Change::Write { offset, len, byte } => {
                let (offset, end) = (at(offset), at(offset + len));
                self.reach(end);
                self.bytes[offset..end].fill(byte);
                self.written[offset / self.block..end.div_ceil(self.block)].fill(true);
            }
            Change::Punch { offset, len } => {
                // The last block is freed as a whole.
                let (end, size) = (at(offset + len), self.bytes.len());
                self.zero(at(offset), if end < size { end } else { size.next_multiple_of(self.block) });
            }
            Change::Zero { offset, len, keep_size } => {
                let (offset, end) = (at(offset), at(offset + len));
                self.reach(if keep_size { 0 } else { end });
                self.zero(offset, end);
            }
            Change::Collapse { offset, len } => {
                let (offset, end) = (at(offset), at(offset + len));
                let (first, behind) = (blocks(offset), blocks(end));
                self.bytes.drain(offset..end);
                self.written.drain(first..behind);
            }
            Change::Insert { offset, len } => {
                let (offset, len) = (at(offset), at(len));
                let (first, count) = (blocks(offset), blocks(len));
                self.bytes.splice(offset..offset, std::iter::repeat_n(0, len));
                self.written.splice(first..first, std::iter::repeat_n(false, count));
            }
            Change::SetLen { size } => self.resize(at(size)),
            Change::Allocate { keep_size: true, .. } => {}
            Change::Allocate { offset, len, .. } => self.reach(at(offset + len)),
        }
    }

    /// Returns the ranges of bytes that are written.
    pub fn data(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (block, _) in self.written.iter().enumerate().filter(|(_, written)| **written) {
            let start = (block * self.block) as u64;
            let end = ((block + 1) * self.block).min(self.bytes.len()) as u64;
            match ranges.last_mut().filter(|last| last.1 == start) {
                Some(last) => last.1 = end,
                None => ranges.push((start, end)),
            }
        }
        ranges
    }

    /// Compares a file with the model.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check(&self, file: &DirectFile) -> Result<(), String> {
        if file.size() != self.bytes.len() as u64 {
            return Err(format!("{} bytes, not {}", file.size(), self.bytes.len()));
        }
        let mut bytes = vec![0xee; self.bytes.len()];
        let count = file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
        if count != bytes.len() {
            return Err(format!("{count} of {} bytes are read", bytes.len()));
        }
        self.same(&bytes)?;
        let seen = data_by_seeking(file)?;
        if seen == self.data() { Ok(()) } else { Err(format!("data at {seen:?}, not {:?}", self.data())) }
    }

    /// Compares bytes with the model.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn same(&self, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() != self.bytes.len() {
            return Err(format!("{} bytes, not {}", bytes.len(), self.bytes.len()));
        }
        match (0..bytes.len()).find(|&at| bytes[at] != self.bytes[at]) {
            Some(at) => Err(format!("byte {at} is {:#x}, not {:#x}", bytes[at], self.bytes[at])),
            None => Ok(()),
        }
    }
}

/// Returns the ranges of bytes that seeking finds.
fn data_by_seeking(file: &DirectFile) -> Result<Vec<(u64, u64)>, String> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    loop {
        match file.seek_data(at) {
            Err(Error::NothingAfter(_)) => return Ok(ranges),
            Err(error) => return Err(error.to_string()),
            Ok(start) => {
                at = file.seek_hole(start).map_err(|e| e.to_string())?;
                ranges.push((start, at));
            }
        }
    }
}

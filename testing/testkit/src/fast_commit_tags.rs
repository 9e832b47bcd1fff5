//! Writes fast commits: tags, and the blocks that they fill.

use parext4_format::checksum::crc32c;

/// Blocks are mapped, as in `fc_tag` of the kernel; so below.
pub const ADD_RANGE: u16 = 1;
/// Blocks are not mapped any more.
pub const DEL_RANGE: u16 = 2;
/// A new inode gets its first name.
pub const CREATE: u16 = 3;
/// An inode gets a name.
pub const LINK: u16 = 4;
/// An inode loses a name.
pub const UNLINK: u16 = 5;
/// The fields of an inode.
pub const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// The contents of an area of fast commits, as they are being written.
pub struct Tags {
    bytes: Vec<u8>,
    block_size: usize,
    tid: u32,
    /// The start of the fast commit.
    start: usize,
}

impl Tags {
    /// Begins the fast commits after transaction `tid - 1`.
    pub fn new(block_size: usize, tid: u32) -> Self {
        let mut tags = Self { bytes: Vec::new(), block_size, tid, start: 0 };
        tags.numbers(HEAD, &[0, tid]);
        tags
    }

    /// Returns the blocks so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a tag, which the block must have room for.
    pub fn add(&mut self, kind: u16, value: &[u8]) {
        self.head(kind, value.len());
        self.bytes.extend(value);
    }

    /// Adds a tag whose value is numbers of 32 bits.
    pub fn numbers(&mut self, kind: u16, numbers: &[u32]) {
        let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.add(kind, &value);
    }

    /// Adds a tag that maps blocks.
    pub fn add_range(&mut self, ino: u32, logical: u32, len: u16, physical: u32) {
        self.numbers(ADD_RANGE, &[ino, logical, len.into(), physical]);
    }

    /// Fills the block with padding unless it has room for `len` bytes of tags.
    pub fn make_room(&mut self, len: usize) {
        let rest = self.rest_of_block();
        if rest < len + 4 {
            self.add(PAD, &vec![0; rest - 4]);
        }
    }

    /// Pads whole blocks until the area has `blocks` of them besides the one that is being written.
    pub fn fill(&mut self, blocks: usize) {
        while self.bytes.len() / self.block_size < blocks {
            self.make_room(self.block_size);
        }
    }

    /// Ends the fast commit and its block.
    pub fn tail(&mut self) {
        self.head(TAIL, self.rest_of_block() - 4);
        self.bytes.extend(self.tid.to_le_bytes());
        let crc = crc32c(0, &self.bytes[self.start..]);
        self.bytes.extend(crc.to_le_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(self.block_size), 0);
        self.start = self.bytes.len();
    }

    fn head(&mut self, kind: u16, len: usize) {
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(u16::try_from(len).unwrap().to_le_bytes());
    }

    fn rest_of_block(&self) -> usize {
        self.block_size - self.bytes.len() % self.block_size
    }
}

//! Blocks that contain their writer, their place, the number of the write, and bytes that follow
//! from these.

use anyhow::{Result, ensure};
use fastrand::Rng;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Bytes of the header: three numbers.
const HEADER: usize = 24;

/// Memory of some blocks, aligned for direct I/O.
pub struct Blocks {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Blocks {
    /// Returns `count` blocks of zeros.
    pub fn new(count: usize) -> Blocks {
        let memory = vec![0; (count + 1) * BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        Blocks { memory, start, len: count * BLOCK }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// Returns the bytes, to change them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Fills a block that `writer` writes at `place` as its write number `sequence`, which is not 0.
pub fn fill(block: &mut [u8], writer: u64, place: u64, sequence: u64) {
    for (field, number) in block.chunks_mut(8).zip([writer, place, sequence]) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    Rng::with_seed(writer << 56 ^ place << 40 ^ sequence).fill(&mut block[HEADER..]);
}

/// Returns the sequence number of a block, or 0 if it was never written.
///
/// # Errors
/// If the block is of another writer or place, or torn.
pub fn sequence(block: &[u8], writer: u64, place: u64) -> Result<u64> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(0);
    }
    let number = |index: usize| {
        let field = block[index * 8..].first_chunk();
        field.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let found = (number(0), number(1), number(2));
    ensure!(
        (found.0, found.1) == (writer, place),
        "a block of writer and place {found:?}, not {:?}",
        (writer, place)
    );
    let mut wanted = vec![0; BLOCK];
    fill(&mut wanted, writer, place, found.2);
    ensure!(block == wanted, "write {} of writer {writer} at {place} is torn", found.2);
    Ok(found.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_block_is_noticed() {
        let mut block = vec![0; BLOCK];
        assert_eq!(sequence(&block, 1, 2).unwrap(), 0);
        fill(&mut block, 1, 2, 3);
        assert_eq!(sequence(&block, 1, 2).unwrap(), 3);
        assert!(sequence(&block, 1, 3).is_err() && sequence(&block, 2, 2).is_err());
        for index in 0..BLOCK {
            block[index] ^= 1;
            assert!(sequence(&block, 1, 2).is_err(), "byte {index}");
            block[index] ^= 1;
        }
    }
}

//! The contents of the blocks that the demo writes: each sector names its writer, its write and its
//! block.

use super::BLOCK;

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;
const MAGIC: u32 = 0x7061_7234;

/// Identifies one write of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the thread and file.
    pub writer: u32,
    /// Number of the block in the file.
    pub block: u32,
    /// Number of the write among the writes of its writer, from 1.
    pub sequence: u32,
}

impl Stamp {
    /// Fills a block. Each sector has the stamp, its number, noise derived from both, and a
    /// CRC-32C.
    pub fn fill(self, bytes: &mut [u8]) {
        for (number, sector) in (0_u32..).zip(bytes[..BLOCK].chunks_exact_mut(SECTOR)) {
            let fields = [MAGIC, self.writer, self.block, self.sequence, number];
            let (body, crc) = sector.split_at_mut(SECTOR - 4);
            let (head, noise) = body.split_at_mut(4 * fields.len());
            for (place, field) in head.chunks_exact_mut(4).zip(fields) {
                place.copy_from_slice(&field.to_le_bytes());
            }
            let mut word = u64::from(self.sequence) << 32 | u64::from(self.block ^ number << 29);
            for place in noise.chunks_mut(8) {
                // The constants of Knuth's MMIX generator.
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                place.copy_from_slice(&word.to_le_bytes()[..place.len()]);
            }
            crc.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        }
    }

    /// Returns what is wrong with a block that should have this stamp, or `None`.
    pub fn fault(self, bytes: &[u8]) -> Option<String> {
        for (number, sector) in (0_u32..).zip(bytes[..BLOCK].chunks_exact(SECTOR)) {
            let (body, crc) = sector.split_at(SECTOR - 4);
            let mut fields = body.chunks_exact(4).map(|bytes| bytes.try_into().map_or(0, u32::from_le_bytes));
            let found: [u32; 5] = std::array::from_fn(|_| fields.next().unwrap_or(0));
            let expected = [MAGIC, self.writer, self.block, self.sequence, number];
            if found != expected {
                return Some(format!("sector {number} has {found:x?} where {expected:x?} was written"));
            }
            if crc != crc32c::crc32c(body).to_le_bytes() {
                return Some(format!("sector {number} has a wrong checksum"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_right_only_as_written() {
        let stamp = Stamp { writer: 3, block: 70, sequence: 9 };
        let mut bytes = [0; BLOCK];
        assert!(stamp.fault(&bytes).is_some());
        stamp.fill(&mut bytes);
        assert_eq!(stamp.fault(&bytes), None);
        assert!(Stamp { sequence: 8, ..stamp }.fault(&bytes).is_some());
        for at in [0, 100, 511, 4095] {
            bytes[at] ^= 1;
            assert!(stamp.fault(&bytes).is_some(), "byte {at}");
            bytes[at] ^= 1;
        }
        // A torn write: the last sector is an older one.
        let mut older = [0; BLOCK];
        Stamp { sequence: 8, ..stamp }.fill(&mut older);
        bytes[BLOCK - SECTOR..].copy_from_slice(&older[BLOCK - SECTOR..]);
        assert!(stamp.fault(&bytes).is_some());
    }
}

//! A block that names its writer: as many copies of one record as fit.

/// Size of a block in bytes, and number of blocks.
pub const BLOCK: usize = 4096;
pub const BLOCKS: u64 = 4096;
/// Bytes of a record: the writer, the block's number, a number that grows with each write, and a
/// checksum of the three.
const RECORD: usize = 32;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// One write by this machine.
    By(char),
    /// Anything else.
    Torn,
}

/// Fills a block.
pub fn fill(bytes: &mut [u8], writer: char, number: u64, sequence: u64) {
    let words = [u64::from(writer), number, sequence, checksum(u64::from(writer), number, sequence)];
    let mut record = [0; RECORD];
    for (to, word) in record.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes.chunks_exact_mut(RECORD).for_each(|to| to.copy_from_slice(&record));
}

/// Returns the writer of block `number`.
pub fn parse(bytes: &[u8], number: u64) -> Found {
    let (record, _) = bytes.split_at(RECORD);
    let mut words =
        record.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    let mut next = || words.next().unwrap_or_default();
    let (writer, found, sequence, sum) = (next(), next(), next(), next());
    let whole = bytes.chunks_exact(RECORD).all(|other| other == record);
    let is_right = whole && found == number && sum == checksum(writer, number, sequence);
    match u32::try_from(writer).ok().and_then(char::from_u32) {
        Some(name) if is_right => Found::By(name),
        _ => Found::Torn,
    }
}

fn checksum(writer: u64, number: u64, sequence: u64) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    [writer, number, sequence].into_iter().fold(0x5f5f, mix)
}

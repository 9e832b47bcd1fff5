//! Sectors that say who wrote them: file, writer, operation and place, under a checksum.

/// Bytes in a sector of the test devices.
pub const SECTOR: usize = 512;

const MAGIC: u64 = u64::from_le_bytes(*b"PAREXT4!");
const BODY: usize = SECTOR - 4;
/// Set in the number of a sector that counts from the start of its append.
const APPENDED: u64 = 1 << 63;

/// Who wrote a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// The file it belongs to, as the test counts files.
    pub file: u32,
    /// The thread that wrote it.
    pub writer: u32,
    /// The writer's operation.
    pub sequence: u64,
    /// For an append the sector at which it went into the file, else 0.
    pub origin: u64,
}

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Zeros: never written, or zeroed.
    Zero,
    /// What an operation wrote.
    Data(Stamp),
}

/// Fills `bytes`, whole sectors that belong at `first_sector` of the file.
pub fn fill(bytes: &mut [u8], first_sector: u64, stamp: Stamp) {
    assert!(bytes.len().is_multiple_of(SECTOR));
    for (number, sector) in (first_sector..).zip(bytes.chunks_exact_mut(SECTOR)) {
        let (body, checksum) = sector.split_at_mut(BODY);
        let words = [MAGIC, u64::from(stamp.file) << 32 | u64::from(stamp.writer), stamp.sequence, number];
        let filler =
            stamp.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number ^ u64::from(stamp.writer) << 48;
        for (index, word) in body.chunks_mut(8).enumerate() {
            let value = words.get(index).copied().unwrap_or(filler.rotate_left(index as u32));
            word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
        }
        checksum.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    }
}

/// Fills `bytes`, whole sectors that are appended where the caller does not know yet; the stamp's origin is
/// left to whoever reads them.
pub fn fill_append(bytes: &mut [u8], stamp: Stamp) {
    fill(bytes, APPENDED, stamp);
}

/// `sectors` whole sectors that belong at `first_sector` of the file.
pub fn filled(first_sector: u64, sectors: u64, stamp: Stamp) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(sectors).unwrap() * SECTOR];
    fill(&mut bytes, first_sector, stamp);
    bytes
}

/// What the sector that was read as number `number` of file `file` holds, or what is wrong with it.
pub fn identify(sector: &[u8], file: u32, number: u64) -> Result<Seen, String> {
    if sector.iter().all(|&byte| byte == 0) {
        return Ok(Seen::Zero);
    }
    let word = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().unwrap());
    let checksum = u32::from_le_bytes(sector[BODY..].try_into().unwrap());
    if word(0) != MAGIC {
        return Err(format!("sector {number}: foreign bytes {:02x?}...", &sector[..16]));
    }
    if crc32c::crc32c(&sector[..BODY]) != checksum {
        return Err(format!("sector {number}: torn inside the sector"));
    }
    let (appended, count) = (word(24) & APPENDED != 0, word(24) & !APPENDED);
    let misplaced = if appended { count > number } else { count != number };
    let origin = if appended { number.wrapping_sub(count) } else { 0 };
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
    let stamp = Stamp { file: (word(8) >> 32) as u32, writer: word(8) as u32, sequence: word(16), origin };
    if stamp.file != file || misplaced {
        return Err(format!("sector {number} of file {file} holds sector {count} of {stamp:?}"));
    }
    Ok(Seen::Data(stamp))
}

/// What whole sectors hold that were read from `first_sector` on.
pub fn identify_all(bytes: &[u8], file: u32, first_sector: u64) -> Result<Vec<Seen>, String> {
    if !bytes.len().is_multiple_of(SECTOR) {
        return Err(format!("{} bytes are not whole sectors", bytes.len()));
    }
    (first_sector..)
        .zip(bytes.chunks_exact(SECTOR))
        .map(|(number, sector)| identify(sector, file, number))
        .collect()
}

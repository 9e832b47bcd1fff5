//! Sectors that name the operation that wrote them: file, writer, sequence number and offset, with
//! a checksum.

/// Bytes in a sector of the test devices.
pub const SECTOR: usize = 512;

const MAGIC: u64 = u64::from_le_bytes(*b"PAREXT4!");
const BODY: usize = SECTOR - 4;
/// Flag in the number of a sector that is relative to the start of its append.
const APPENDED: u64 = 1 << 63;

/// The operation that wrote a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// Number of the file, assigned by the test.
    pub file: u32,
    /// Number of the thread.
    pub writer: u32,
    /// Number of the operation within its thread.
    pub sequence: u64,
    /// For an append, the sector of the file at which it begins; otherwise 0.
    pub origin: u64,
}

/// The content of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Zeros: never written, or zeroed.
    Zero,
    /// Data that an operation wrote.
    Data(Stamp),
}

/// Returns true if an operation has written the sector, as the first bytes tell.
pub fn is_stamped(sector: &[u8]) -> bool {
    sector.starts_with(&MAGIC.to_le_bytes())
}

/// Fills `bytes`, which must be whole sectors, for sector `first_sector` of the file.
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

/// Fills `bytes`, which must be whole sectors, for an append whose offset is not known yet.
/// [`identify`] determines the origin of the stamp.
pub fn fill_append(bytes: &mut [u8], stamp: Stamp) {
    fill(bytes, APPENDED, stamp);
}

/// Returns `sectors` sectors for sector `first_sector` of the file.
pub fn filled(first_sector: u64, sectors: u64, stamp: Stamp) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(sectors).unwrap() * SECTOR];
    fill(&mut bytes, first_sector, stamp);
    bytes
}

/// Returns the content of a sector that was read as sector `number` of file `file`.
///
/// # Errors
/// If the sector is torn, or belongs elsewhere.
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

/// Returns the content of sectors that were read from sector `first_sector` on.
///
/// # Errors
/// If a sector is torn, or belongs elsewhere.
pub fn identify_all(bytes: &[u8], file: u32, first_sector: u64) -> Result<Vec<Seen>, String> {
    if !bytes.len().is_multiple_of(SECTOR) {
        return Err(format!("{} bytes are not whole sectors", bytes.len()));
    }
    (first_sector..)
        .zip(bytes.chunks_exact(SECTOR))
        .map(|(number, sector)| identify(sector, file, number))
        .collect()
}

//! The entries of a directory block, whatever their names. The parser of the format rejects names
//! that no path can contain, which encrypted directories have.

use parext4_format::{FormatError, InodeNo};

/// Bytes of an entry before its name.
const HEADER: usize = 8;
/// The shortest entry, in bytes.
const SHORTEST: usize = 12;

/// A directory entry. Its inode is 0 if the entry is unused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub ino: InodeNo,
    /// The type of the file; 0 on a volume without types.
    pub file_type: u8,
    pub name: &'a [u8],
}

/// Iterator over entries. Ends after the first error.
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    block_size: usize,
}

impl<'a> Walk<'a> {
    /// Walks the entries in `bytes`, which are part of a block of `block_size` bytes.
    pub(crate) fn new(bytes: &'a [u8], block_size: usize) -> Self {
        Self { bytes, at: 0, block_size }
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Entry<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let Some((entry, len)) = parse(rest, self.block_size) else {
            let at = std::mem::replace(&mut self.at, self.bytes.len());
            let problem = format_args!("the entry at byte {at} does not fit the block");
            return Some(Err(FormatError::new("directory entry", "rec_len", problem)));
        };
        self.at += len;
        Some(Ok(entry))
    }
}

fn parse(rest: &[u8], block_size: usize) -> Option<(Entry<'_>, usize)> {
    let head: &[u8; HEADER] = rest.first_chunk()?;
    let ino = InodeNo(u32::from_le_bytes([head[0], head[1], head[2], head[3]]));
    let len = match u16::from_le_bytes([head[4], head[5]]) {
        // A block of 64 KiB stores its size as 0 or `u16::MAX`.
        0 | u16::MAX if block_size == 1 << 16 => block_size,
        len => len.into(),
    };
    let name_len = usize::from(head[6]);
    let left = rest.len().checked_sub(len)?;
    let fits = len >= SHORTEST
        && len.is_multiple_of(4)
        && (HEADER + name_len).next_multiple_of(4) <= len
        && (left == 0 || left >= SHORTEST);
    let name = rest.get(HEADER..HEADER + name_len)?;
    fits.then_some((Entry { ino, file_type: head[7], name }, len))
}

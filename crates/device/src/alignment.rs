//! What direct I/O on a file demands of memory addresses, offsets and lengths.

/// The largest sector that a volume can have, bytes.
const MAX_SECTOR: u32 = 4096;
/// The strictest alignment of memory that [`AlignedBuf`](crate::AlignedBuf) provides, bytes.
const MAX_MEMORY: u32 = 4096;

/// Alignment of direct I/O; both fields are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// Alignment of memory addresses, bytes.
    pub(crate) memory: u32,
    /// Alignment of file offsets and of each buffer's length, bytes.
    pub(crate) offset: u32,
}

impl Alignment {
    /// Returns an alignment, or `None` if this crate cannot satisfy it. Offsets are aligned to at
    /// least 512 bytes.
    pub(crate) fn new(memory: u32, offset: u32) -> Option<Self> {
        let valid = memory.is_power_of_two() && offset.is_power_of_two() && offset <= MAX_SECTOR;
        (valid && memory <= MAX_MEMORY).then(|| Self { memory, offset: offset.max(512) })
    }

    /// Returns whether the kernel accepts this buffer for direct I/O.
    pub(crate) fn fits(self, buf: &[u8]) -> bool {
        // Both are at most 4096.
        let (memory, offset) = (self.memory as usize, self.offset as usize);
        buf.as_ptr().addr().is_multiple_of(memory) && buf.len().is_multiple_of(offset)
    }
}

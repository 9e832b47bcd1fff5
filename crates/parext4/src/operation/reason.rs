//! The reasons for which an operation needs the range that it holds, for statistics and
//! explanations.

use std::fmt;

/// Why an operation needs the range, or the file, that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// It reads. Reads share with each other.
    Read,
    /// It overwrites written blocks, and needs only its own bytes.
    Overwrite,
    /// It writes whole blocks for the first time.
    WholeBlocks,
    /// It writes part of a block and fills the rest with zeros. No other writer may be in that
    /// block (I4).
    InitialisesBlock,
    /// It extends the file past a last block whose rest must be zeroed first (H3).
    ZeroesTail,
    /// It extends the file.
    Extends,
    /// It allocates blocks for its data.
    FillsHole,
    /// Its blocks are not one extent in one state. Only for policies that hold the whole file.
    ManyExtents,
    /// It does not consist of whole blocks. Only for
    /// [`Policy::Exclusive`](crate::Policy::Exclusive).
    Unaligned,
    /// It sets the size, which affects all data after that.
    SetsSize,
    /// It allocates blocks that are written later.
    Allocates,
    /// It frees blocks, and zeroes the edges of its range.
    PunchesHole,
    /// It makes blocks unwritten, and zeroes the edges of its range.
    ZeroesRange,
    /// It removes a range and moves all later data down.
    CollapsesRange,
    /// It inserts a hole and moves all later data up.
    InsertsRange,
    /// It reads through the page cache. Such reads share with each other.
    ReadsCached,
    /// It writes to the page cache.
    WritesCached,
    /// It copies dirty pages, to write them to the device.
    WritesBack,
    /// It changes a file whose contents lie in its inode, or moves them to blocks.
    ChangesInline,
}

impl Reason {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 19] = [
        Self::Read,
        Self::Overwrite,
        Self::WholeBlocks,
        Self::InitialisesBlock,
        Self::ZeroesTail,
        Self::Extends,
        Self::FillsHole,
        Self::ManyExtents,
        Self::Unaligned,
        Self::SetsSize,
        Self::Allocates,
        Self::PunchesHole,
        Self::ZeroesRange,
        Self::CollapsesRange,
        Self::InsertsRange,
        Self::ReadsCached,
        Self::WritesCached,
        Self::WritesBack,
        Self::ChangesInline,
    ];
}

/// A verb phrase whose subject is the operation.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "reads",
            Self::Overwrite => "overwrites written blocks",
            Self::WholeBlocks => "writes whole blocks for the first time",
            Self::InitialisesBlock => "initialises a block that it covers in part",
            Self::ZeroesTail => "zeroes the rest of the last block and grows the file",
            Self::Extends => "grows the file",
            Self::FillsHole => "fills a hole",
            Self::ManyExtents => "writes to more than one extent",
            Self::Unaligned => "writes part of a block",
            Self::SetsSize => "sets the size",
            Self::Allocates => "allocates blocks",
            Self::PunchesHole => "punches a hole",
            Self::ZeroesRange => "zeroes a range",
            Self::CollapsesRange => "removes a range and moves the data after it",
            Self::InsertsRange => "inserts a hole and moves the data after it",
            Self::ReadsCached => "reads through the page cache",
            Self::WritesCached => "writes to the page cache",
            Self::WritesBack => "copies dirty pages to write them back",
            Self::ChangesInline => "changes contents in the inode",
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::operation::Reason;

    #[test]
    fn every_reason_is_in_its_place() {
        assert!(Reason::ALL.into_iter().enumerate().all(|(place, reason)| reason as usize == place));
    }
}

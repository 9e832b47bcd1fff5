//! Why an operation needs what it holds.

use std::fmt;

/// Why an operation needs the range, or the file, that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A read shares with other reads.
    Read,
    /// Written blocks are overwritten; only the bytes themselves matter.
    Overwrite,
    /// Whole blocks become written.
    WholeBlocks,
    /// A block is written in part and its rest filled with zeros: no other writer may be in it (I4).
    InitialisesBlock,
    /// The file grows past a last block whose rest must be zeroed first (H3).
    ZeroesTail,
    /// The file grows.
    Extends,
    /// Blocks are allocated for the data.
    FillsHole,
    /// The blocks are not one extent of one state, which the policies of whole files ask for.
    ManyExtents,
    /// The request is not one of whole blocks, which [`Policy::Exclusive`](crate::Policy::Exclusive) asks for.
    Unaligned,
    /// The size is set: everything behind it is affected.
    SetsSize,
    /// Blocks are allocated ahead of writing.
    Allocates,
    /// Blocks are freed, and what is left of the range at its edges is zeroed.
    PunchesHole,
    /// Blocks become unwritten, and what is left of the range at its edges is zeroed.
    ZeroesRange,
    /// A range is taken out: everything behind it moves down.
    CollapsesRange,
    /// A hole is put in: everything behind it moves up.
    InsertsRange,
    /// A read through the page cache shares with other reads.
    ReadsCached,
    /// A write to the page cache.
    WritesCached,
    /// Dirty pages are taken to be written to the device.
    WritesBack,
}

impl Reason {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 18] = [
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
    ];
}

/// In plain words, of "it".
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
            Self::CollapsesRange => "takes a range out and moves what is behind it",
            Self::InsertsRange => "puts a hole in and moves what is behind it",
            Self::ReadsCached => "reads through the page cache",
            Self::WritesCached => "writes to the page cache",
            Self::WritesBack => "takes dirty pages to write them back",
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

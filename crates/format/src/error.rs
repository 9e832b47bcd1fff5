//! The error of this crate: an on-disk structure failed a check.

use std::fmt;

use crate::number::{FsBlock, GroupNo, InodeNo};

/// An on-disk structure that failed a check, with the structure, the field and the place as data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormatError {
    /// The structure, as the kernel's documentation names it: `superblock`, `extent header`, ...
    pub structure: &'static str,
    /// The field that failed, as the kernel names it: `s_magic`, `eh_entries`, `checksum`, ...
    pub field: &'static str,
    /// The value found, and why it is wrong.
    pub problem: String,
    /// The inode that the structure belongs to, if the parser knows it.
    pub ino: Option<InodeNo>,
    /// The block of the volume that contains the structure, if the parser knows it.
    pub block: Option<FsBlock>,
    /// The block group that the structure belongs to, if the parser knows it.
    pub group: Option<GroupNo>,
}

/// The result of parsing or checking a structure.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

impl FormatError {
    /// Returns an error in `field` of `structure`, without a place.
    pub fn new(structure: &'static str, field: &'static str, problem: impl fmt::Display) -> Self {
        Self { structure, field, problem: problem.to_string(), ino: None, block: None, group: None }
    }

    /// Returns the error of a checksum that does not match, without a place.
    #[must_use]
    pub fn checksum(structure: &'static str, stored: u32, computed: u32) -> Self {
        Self::new(structure, "checksum", format_args!("stored {stored:#010x}, computed {computed:#010x}"))
    }

    /// Sets the inode that the structure belongs to.
    #[must_use]
    pub fn of_inode(self, ino: InodeNo) -> Self {
        Self { ino: Some(ino), ..self }
    }

    /// Sets the block group that the structure belongs to.
    #[must_use]
    pub fn in_group(self, group: GroupNo) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Sets the block of the volume that contains the structure.
    #[must_use]
    pub fn in_block(self, block: FsBlock) -> Self {
        Self { block: Some(block), ..self }
    }
}

impl std::error::Error for FormatError {}

/// Prints `structure: field: problem (inode 12, block 34, group 1)`, without the places that are
/// not set.
impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.structure, self.field, self.problem)?;
        write_place(f, self.ino, self.block, self.group)
    }
}

/// Prints ` (inode 12, block 34, group 1)`, without the parts that are not set; nothing if none is.
///
/// # Errors
/// The errors of the formatter.
pub fn write_place(
    f: &mut fmt::Formatter<'_>,
    ino: Option<InodeNo>,
    block: Option<FsBlock>,
    group: Option<GroupNo>,
) -> fmt::Result {
    let place = [
        ino.map(|ino| format!("inode {ino}")),
        block.map(|block| format!("block {block}")),
        group.map(|group| format!("group {group}")),
    ];
    let place: Vec<_> = place.into_iter().flatten().collect();
    if place.is_empty() { Ok(()) } else { write!(f, " ({})", place.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_ends_with_the_place() {
        let error = FormatError::new("inode", "i_mode", "0 has no file type");
        assert_eq!(error.to_string(), "inode: i_mode: 0 has no file type");
        let error = error.of_inode(InodeNo(12));
        assert_eq!(error.to_string(), "inode: i_mode: 0 has no file type (inode 12)");
        let error = error.in_block(FsBlock(34));
        assert_eq!(error.to_string(), "inode: i_mode: 0 has no file type (inode 12, block 34)");
        let grouped = FormatError::new("group descriptor", "bg_inode_table", "0").in_group(GroupNo(1));
        assert_eq!(grouped.to_string(), "group descriptor: bg_inode_table: 0 (group 1)");
        assert_eq!((error.ino, error.block), (Some(InodeNo(12)), Some(FsBlock(34))));
    }
}

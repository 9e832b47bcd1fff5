//! A failed check of the volume, with structure, field and place as data.

use std::fmt;

use parext4_format::{FormatError, FsBlock, GroupNo, InodeNo, write_place};

/// A failed check of the volume. Each part is set as far as the check knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corruption {
    /// The structure, as the kernel's documentation names it: `superblock`, `extent header`, ...
    pub structure: Option<&'static str>,
    /// The field of the structure, as the kernel names it: `s_magic`, `eh_entries`, ...
    pub field: Option<&'static str>,
    /// The value found, and why it is wrong.
    pub problem: String,
    /// The inode that the structure belongs to.
    pub ino: Option<InodeNo>,
    /// The block of the volume that contains the structure.
    pub block: Option<FsBlock>,
    /// The block group that the structure belongs to.
    pub group: Option<GroupNo>,
}

impl Corruption {
    /// Returns a corruption of no structure in particular. `problem` describes it.
    pub fn new(problem: impl fmt::Display) -> Self {
        let problem = problem.to_string();
        Self { structure: None, field: None, problem, ino: None, block: None, group: None }
    }

    /// Returns a corruption of a field.
    pub(super) fn of_field(structure: &'static str, field: &'static str, problem: impl fmt::Display) -> Self {
        Self { structure: Some(structure), field: Some(field), ..Self::new(problem) }
    }
}

impl From<FormatError> for Corruption {
    fn from(error: FormatError) -> Self {
        let FormatError { structure, field, problem, ino, block, group, .. } = error;
        Self { structure: Some(structure), field: Some(field), problem, ino, block, group }
    }
}

/// Prints `structure: field: problem (inode 12, block 34, group 1)`, without the parts that are not
/// set.
impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in [self.structure, self.field].into_iter().flatten() {
            write!(f, "{name}: ")?;
        }
        f.write_str(&self.problem)?;
        write_place(f, self.ino, self.block, self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn an_error_of_the_parser_keeps_its_parts_and_gains_a_place() {
        let parsed = FormatError::new("extent header", "eh_magic", "0x0").in_block(FsBlock(34));
        let error = Error::from(parsed).of_inode(InodeNo(12)).in_block(FsBlock(99));
        assert_eq!(error.to_string(), "corrupt volume: extent header: eh_magic: 0x0 (inode 12, block 34)");
        let Error::Corrupt(corruption) = error else { panic!("{error}") };
        assert_eq!((corruption.structure, corruption.field), (Some("extent header"), Some("eh_magic")));
        assert_eq!((corruption.ino, corruption.block), (Some(InodeNo(12)), Some(FsBlock(34))));
        assert_eq!(Error::corrupt("as a test says").to_string(), "corrupt volume: as a test says");
    }
}

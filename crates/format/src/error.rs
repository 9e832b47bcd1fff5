//! The one error of this crate: a structure on the device failed a named check.

use std::fmt;

/// A check that an on-disk structure failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure}: {field}: {problem}")]
pub struct FormatError {
    /// The structure, as the kernel's documentation names it: `superblock`, `extent header`, ...
    pub structure: &'static str,
    /// The field that failed, as the kernel names it: `s_magic`, `eh_entries`, `checksum`, ...
    pub field: &'static str,
    /// What was wrong with it, with the value found.
    pub problem: String,
}

/// The result of parsing or checking a structure.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

impl FormatError {
    /// An error for `field` of `structure`.
    pub fn new(structure: &'static str, field: &'static str, problem: impl fmt::Display) -> Self {
        Self { structure, field, problem: problem.to_string() }
    }

    /// A checksum that does not match.
    #[must_use]
    pub fn checksum(structure: &'static str, stored: u32, computed: u32) -> Self {
        Self::new(structure, "checksum", format_args!("stored {stored:#010x}, computed {computed:#010x}"))
    }
}

//! Policies for comparison and research: what operations on one file hold, and when an extent is
//! split.
//!
//! Only names, parsing and the options that select them. `admission` applies [`Policy`], and the
//! preparation of a write applies [`SplitAt`].

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Which operations on one file may run at the same time.
///
/// [`Range`](Self::Range) is the default. The other two policies follow the kernel's ext4, for
/// comparison, and hold the whole file, shared or exclusive. The kernel also counts a write from
/// unaligned memory as unaligned; parext4 checks only offset and length.
///
/// Under a policy that lets overwrites share the file, overlapping overwrites are not ordered: each
/// sector contains the data of one of them, and a read may see half of one, as with the kernel.
/// Size, map, and all else that a crash or a check could reveal are correct under every policy.
///
/// ```
/// use parext4::Policy;
///
/// assert_eq!("shared-overwrite".parse::<Policy>()?, Policy::SharedOverwrite);
/// assert!(!Policy::default().locks_whole_file());
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// As ext4 before it let writes that initialise blocks share the file: only overwrites of whole
    /// blocks within one extent share it, with each other and with reads.
    Exclusive,
    /// As ext4 since Linux 6.5: overwrites within one extent, and writes of whole blocks into one
    /// unwritten extent, share the file. All other writes hold it exclusively.
    SharedOverwrite,
    /// Every operation holds the bytes or blocks that it needs, and waits only for operations that
    /// need some of them, too.
    #[default]
    Range,
}

impl Policy {
    /// All policies, the most restrictive first.
    pub const ALL: [Self; 3] = [Self::Exclusive, Self::SharedOverwrite, Self::Range];

    /// Returns the name, which [`FromStr`] parses: `exclusive`, `shared-overwrite` or `range`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::SharedOverwrite => "shared-overwrite",
            Self::Range => "range",
        }
    }

    /// Returns true if every operation holds the whole file.
    #[must_use]
    pub const fn locks_whole_file(self) -> bool {
        !matches!(self, Self::Range)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == text).ok_or_else(|| {
            Error::invalid(format_args!(
                "policy {text:?}: there are {}",
                Self::ALL.map(Self::name).join(", ")
            ))
        })
    }
}

/// Options for comparison and research, such as benchmarks against the kernel's ext4. The defaults
/// are the fastest, and promise the most.
///
/// ```
/// use parext4::{Policy, ResearchOptions, VolumeOptions};
///
/// let as_the_kernel = ResearchOptions::new().policy(Policy::SharedOverwrite);
/// let options = VolumeOptions::new().research(as_the_kernel).explain(true);
/// assert_eq!(options.research.policy.name(), "shared-overwrite");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResearchOptions {
    /// Which operations on one file may run at the same time.
    pub policy: Policy,
    /// When a write into part of an unwritten extent splits the extent.
    pub split_at: SplitAt,
    /// Least number of new blocks that one write allocates in one step, in a window that is
    /// reserved for the file as it grows. A write of fewer blocks allocates each block where the
    /// last write to any file ended. `None`: all writes do. 0 by default.
    pub serialize_allocation_from: Option<u32>,
}

impl Default for ResearchOptions {
    fn default() -> Self {
        Self { policy: Policy::default(), split_at: SplitAt::default(), serialize_allocation_from: Some(0) }
    }
}

impl ResearchOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`policy`](field@Self::policy).
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets [`split_at`](field@Self::split_at).
    #[must_use]
    pub fn split_at(mut self, split_at: SplitAt) -> Self {
        self.split_at = split_at;
        self
    }

    /// Sets [`serialize_allocation_from`](field@Self::serialize_allocation_from).
    #[must_use]
    pub fn serialize_allocation_from(mut self, blocks: impl Into<Option<u32>>) -> Self {
        self.serialize_allocation_from = blocks.into();
        self
    }
}

/// When a write into part of an unwritten extent splits the extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SplitAt {
    /// After its data is on the device, with reserved blocks. Several splits may become one change
    /// of the map.
    #[default]
    Completion,
    /// Before its data is submitted to the device, as in Linux up to 6.x.
    Submission,
}

impl fmt::Display for SplitAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completion => "completion",
            Self::Submission => "submission",
        })
    }
}

impl FromStr for SplitAt {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "completion" => Ok(Self::Completion),
            "submission" => Ok(Self::Submission),
            _ => Err(Error::invalid(format_args!("{text:?}: extents are split at completion or submission"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Policy;

    #[test]
    fn names_are_read_as_they_are_printed() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
        }
        assert!("Range".parse::<Policy>().is_err());
        assert_eq!(Policy::default(), Policy::Range);
    }
}

//! How operations on one file keep out of each other's way, and when they change its map.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Which operations on one file may go on at once. [`Range`](Self::Range) is what parext4 is for; the other two
/// follow the kernel's ext4, to be measured against. They hold the whole file in one of two modes.
///
/// The kernel also counts a write from memory that is not aligned to blocks as unaligned; parext4 looks at
/// offset and length alone.
///
/// Where a policy lets two overwrites go on at once, those that overlap are not ordered: each sector holds one
/// or the other, and a read may see half of one, as with the kernel. Size, map and everything else that a crash
/// or a check could show stay right under every policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// As ext4 was before it let any write that allocates or initialises go on beside others: only overwrites
    /// of whole blocks in one extent share the file, with each other and with reads.
    Exclusive,
    /// As ext4 is since Linux 6.5: overwrites within one extent, and writes of whole blocks into one unwritten
    /// extent, share the file. Everything else has it alone.
    SharedOverwrite,
    /// Every operation holds the bytes or blocks that it needs, and meets only those that need some of them too.
    #[default]
    Range,
}

impl Policy {
    /// All policies, the most restrictive first.
    pub const ALL: [Self; 3] = [Self::Exclusive, Self::SharedOverwrite, Self::Range];

    /// The name, which [`FromStr`] takes: `exclusive`, `shared-overwrite` or `range`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::SharedOverwrite => "shared-overwrite",
            Self::Range => "range",
        }
    }

    /// Whether every operation holds the whole file.
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

/// When a write into part of an unwritten extent cuts the extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitAt {
    /// When its data is on the device, with what was reserved before; many cuts then become one change.
    #[default]
    Completion,
    /// Before its data goes to the device, as Linux did up to 6.x.
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

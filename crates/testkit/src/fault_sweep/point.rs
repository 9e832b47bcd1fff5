//! Fault points: which request of a run fails, and how.

use std::fmt;
use std::str::FromStr;

use parext4::device::{FaultKind, FaultPlan};

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Alone.
    Once,
    /// With all later requests of its kind.
    Sticky,
    /// After half of its sectors were transferred.
    Torn,
}

/// What fails in a run, written as `writes:17:once`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultPoint {
    /// Requests of the device.
    Request {
        /// The kind of requests that are counted.
        kind: FaultKind,
        /// Number of the request, from 1.
        number: u64,
        /// How it fails.
        manner: Manner,
        /// The volume has the least memory for pages and metadata.
        little_memory: bool,
    },
    /// Allocations, because the volume has only this number of free blocks.
    Full(u64),
}

/// The kinds and their words.
const KINDS: [(FaultKind, &str); 5] = [
    (FaultKind::Any, "requests"),
    (FaultKind::Reads, "reads"),
    (FaultKind::Writes, "writes"),
    (FaultKind::Flushes, "flushes"),
    (FaultKind::Discards, "discards"),
];
const MANNERS: [(Manner, &str); 3] =
    [(Manner::Once, "once"), (Manner::Sticky, "sticky"), (Manner::Torn, "torn")];
const LITTLE_MEMORY: &str = "little-memory";

impl FaultPoint {
    /// Returns the plan of the device.
    pub fn plan(self) -> FaultPlan {
        match self {
            Self::Request { kind, number, manner, .. } => {
                let plan = FaultPlan::at(number).kind(kind);
                plan.sticky(manner == Manner::Sticky).torn(manner == Manner::Torn)
            }
            Self::Full(_) => FaultPlan::default(),
        }
    }

    /// Returns true if the volume has little memory.
    pub fn little_memory(self) -> bool {
        matches!(self, Self::Request { little_memory: true, .. })
    }

    /// Returns true if later reads succeed.
    pub fn reads_later(self) -> bool {
        let fails = matches!(
            self,
            Self::Request { kind: FaultKind::Any | FaultKind::Reads, manner: Manner::Sticky, .. }
        );
        !fails
    }

    /// Returns true if all later requests succeed.
    pub fn works_later(self) -> bool {
        !matches!(self, Self::Request { manner: Manner::Sticky, .. })
    }
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Full(free) => write!(f, "free-blocks:{free}"),
            Self::Request { kind, number, manner, little_memory } => {
                let word = KINDS.iter().find(|(known, _)| *known == kind).expect("a word for each kind").1;
                let how =
                    MANNERS.iter().find(|(known, _)| *known == manner).expect("a word for each manner").1;
                write!(f, "{word}:{number}:{how}")?;
                if little_memory { write!(f, ":{LITTLE_MEMORY}") } else { Ok(()) }
            }
        }
    }
}

impl FromStr for FaultPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no fault point, such as writes:17:once or free-blocks:3");
        let words: Vec<&str> = text.split(':').collect();
        let number = |word: &str| word.parse().map_err(|_| wrong());
        match words[..] {
            ["free-blocks", free] => Ok(Self::Full(number(free)?)),
            [kind, count, how, ref rest @ ..] if rest.is_empty() || *rest == [LITTLE_MEMORY] => {
                let (kind, _) = KINDS.into_iter().find(|(_, word)| *word == kind).ok_or_else(wrong)?;
                let (manner, _) = MANNERS.into_iter().find(|(_, word)| *word == how).ok_or_else(wrong)?;
                Ok(Self::Request { kind, number: number(count)?, manner, little_memory: !rest.is_empty() })
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_as_they_are_written() {
        for text in ["writes:17:once", "requests:1:sticky", "reads:3:torn:little-memory", "free-blocks:0"] {
            assert_eq!(text.parse::<FaultPoint>().unwrap().to_string(), text);
        }
        for text in ["", "writes", "writes:x:once", "writes:1:once:more", "free-blocks:1:once"] {
            assert!(text.parse::<FaultPoint>().is_err(), "{text}");
        }
    }
}

//! Fault points: which request of a run fails, and how.

use std::fmt;
use std::str::FromStr;

use parext4::device::{FaultKind, FaultPlan};

use super::shortage::Resource;

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
    /// Allocations, because a resource runs out.
    Shortage {
        /// What runs out.
        resource: Resource,
        /// The number that is left before the run.
        left: u64,
        /// The volume has the least memory for pages and metadata.
        little_memory: bool,
    },
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
const RESOURCES: [(Resource, &str); 4] = [
    (Resource::Blocks, "free-blocks"),
    (Resource::Inodes, "free-inodes"),
    (Resource::QuotaBlocks, "quota-blocks"),
    (Resource::QuotaInodes, "quota-inodes"),
];
const LITTLE_MEMORY: &str = "little-memory";

impl FaultPoint {
    /// Returns the plan of the device.
    pub fn plan(self) -> FaultPlan {
        match self {
            Self::Request { kind, number, manner, .. } => {
                let plan = FaultPlan::at(number).kind(kind);
                plan.sticky(manner == Manner::Sticky).torn(manner == Manner::Torn)
            }
            Self::Shortage { .. } => FaultPlan::default(),
        }
    }

    /// Returns true if the volume has little memory.
    pub fn little_memory(self) -> bool {
        let (Self::Request { little_memory, .. } | Self::Shortage { little_memory, .. }) = self;
        little_memory
    }

    /// Returns what runs out, if the fault is that something does.
    pub fn resource(self) -> Option<Resource> {
        match self {
            Self::Shortage { resource, .. } => Some(resource),
            Self::Request { .. } => None,
        }
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
            Self::Shortage { resource, left, .. } => write!(f, "{}:{left}", word(&RESOURCES, resource))?,
            Self::Request { kind, number, manner, .. } => {
                write!(f, "{}:{number}:{}", word(&KINDS, kind), word(&MANNERS, manner))?;
            }
        }
        if self.little_memory() { write!(f, ":{LITTLE_MEMORY}") } else { Ok(()) }
    }
}

impl FromStr for FaultPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no fault point, such as writes:17:once or free-blocks:3");
        let mut words: Vec<&str> = text.split(':').collect();
        let little_memory = words.pop_if(|last| *last == LITTLE_MEMORY).is_some();
        let number = |word: &str| word.parse().map_err(|_| wrong());
        match words[..] {
            [resource, left] => {
                let resource = meaning(&RESOURCES, resource).ok_or_else(wrong)?;
                Ok(Self::Shortage { resource, left: number(left)?, little_memory })
            }
            [kind, count, how] => {
                let kind = meaning(&KINDS, kind).ok_or_else(wrong)?;
                let manner = meaning(&MANNERS, how).ok_or_else(wrong)?;
                Ok(Self::Request { kind, number: number(count)?, manner, little_memory })
            }
            _ => Err(wrong()),
        }
    }
}

/// Returns the word for `meaning`.
fn word<T: PartialEq>(words: &[(T, &'static str)], meaning: T) -> &'static str {
    words.iter().find(|(known, _)| *known == meaning).expect("a word for each meaning").1
}

/// Returns what `word` means.
fn meaning<T: Copy>(words: &[(T, &str)], word: &str) -> Option<T> {
    words.iter().find(|(_, known)| *known == word).map(|(meaning, _)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_as_they_are_written() {
        for text in [
            "writes:17:once",
            "requests:1:sticky",
            "reads:3:torn:little-memory",
            "free-blocks:0",
            "quota-inodes:2:little-memory",
        ] {
            assert_eq!(text.parse::<FaultPoint>().unwrap().to_string(), text);
        }
        for text in ["", "writes", "writes:x:once", "writes:1:once:more", "free-blocks:1:once"] {
            assert!(text.parse::<FaultPoint>().is_err(), "{text}");
        }
    }
}

//! Explanations of waits, as data and in words.

use std::fmt;
use std::time::Duration;

use parext4_format::InodeNo;

use super::units::{Exact, Time};
use crate::operation::{Operation, Reason};

/// Why operations for one reason waited for operations for another, from
/// [`Volume::explain`](crate::Volume::explain). The fields describe the longest of these waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The inode of the file.
    pub ino: InodeNo,
    /// The operation that waited.
    pub waiter: Contender,
    /// The first earlier operation with a conflicting range, which it held or waited for. `None` if
    /// that operation was just ending, or if more than 256 operations were active on the file.
    pub holder: Option<Contender>,
    /// True if the policy makes operations hold the whole file.
    pub whole_file: bool,
    /// Time for which the operation waited.
    pub waited: Duration,
    /// Number of waits for the same two reasons, including this one.
    pub times: u64,
    /// Sum of the times of these waits.
    pub total: Duration,
}

/// An operation that contends for a range with another one: it waits for the range, or holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// The operation.
    pub operation: Operation,
    /// The reason why the operation needs its range.
    pub reason: Reason,
    /// True if the operation needs the range exclusively.
    pub exclusive: bool,
}

impl Explanation {
    /// Writes the cause of the conflict between the waiter and `holder`.
    fn cause(&self, holder: &Contender, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiter, other) = (&self.waiter, WithArticle(holder.operation));
        if self.whole_file {
            let how = |contender: &Contender| if contender.exclusive { "exclusively" } else { "shared" };
            write!(f, "it {}, for which it must hold the file {}; ", waiter.reason, how(waiter))?;
            return write!(f, "{other} held it {}, because it {}", how(holder), holder.reason);
        }
        match (waiter.reason, holder.reason) {
            (_, Reason::Read) => write!(f, "its bytes were in use by {other}"),
            (_, why) if waiter.operation.meets(holder.operation) => {
                write!(f, "its bytes were in use by {other}, which {why}")
            }
            (_, Reason::InitialisesBlock) => write!(f, "its block was being initialised by {other}"),
            (_, Reason::ZeroesTail) => write!(f, "the rest of its block was being zeroed for {other}"),
            (own, _) => write!(f, "it {own}, where {other} was under way"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiter, waited) = (self.waiter.operation, Time(self.waited));
        write!(f, "{waiter} in inode {} waited {waited}: ", self.ino)?;
        match &self.holder {
            Some(holder) => self.cause(holder, f)?,
            None => write!(f, "it {}, and another operation was before it", self.waiter.reason)?,
        }
        match self.times {
            1 => Ok(()),
            times => write!(f, " ({times} such waits, {} in all)", Time(self.total)),
        }
    }
}

impl Operation {
    /// Returns true if both operations affect a common byte.
    fn meets(self, other: Self) -> bool {
        let (a, b) = (self.bytes(), other.bytes());
        a.0 < b.1 && b.0 < a.1
    }
}

/// Displays the kind of the operation, its length and its offset.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, start, end) = match *self {
            Self::Read { offset, end } => ("read", offset, end),
            Self::Write { offset, end } | Self::Widen { offset, end } => ("write", offset, end),
            Self::BufferedRead { offset, end } => ("buffered read", offset, end),
            Self::BufferedWrite { offset, end } => ("buffered write", offset, end),
            Self::WriteBack { offset, end } => ("write-back", offset, end),
            Self::Allocate { offset, end, .. } => ("allocation", offset, end),
            Self::PunchHole { offset, end } => ("hole", offset, end),
            Self::ZeroRange { offset, end, .. } => ("range of zeros", offset, end),
            Self::CollapseRange { offset, end } => ("collapse", offset, end),
            Self::InsertRange { offset, end } => ("insertion", offset, end),
            Self::ChangeInline => return f.write_str("change of contents in the inode"),
            Self::SetLen { size } => return write!(f, "change of the size to {}", Exact(size)),
        };
        write!(f, "{what} of {} at {}", Exact(end - start), Exact(start))
    }
}

/// Displays an operation with its indefinite article.
struct WithArticle(Operation);

impl fmt::Display for WithArticle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vowel = matches!(self.0, Operation::Allocate { .. } | Operation::InsertRange { .. });
        let article = if vowel { "an" } else { "a" };
        write!(f, "{article} {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn write(offset: u64, end: u64, reason: Reason) -> Contender {
        Contender { operation: Operation::Write { offset, end }, reason, exclusive: true }
    }

    fn text(waiter: Contender, holder: Option<Contender>, whole_file: bool) -> String {
        let waited = Duration::from_micros(230);
        let ino = InodeNo(12);
        Explanation { ino, waiter, holder, whole_file, waited, times: 1, total: waited }.to_string()
    }

    #[test]
    fn ranges_in_words() {
        let first = write(14 << 10, 16 << 10, Reason::InitialisesBlock);
        let other = write(12 << 10, 13 << 10, Reason::InitialisesBlock);
        assert_eq!(
            text(first, Some(other), false),
            "write of 2 KiB at 14 KiB in inode 12 waited 230 us: \
             its block was being initialised by a write of 1 KiB at 12 KiB"
        );
        let read = Operation::Read { offset: 512, end: 1 << 20 };
        let read = Contender { operation: read, reason: Reason::Read, exclusive: false };
        assert!(text(first, Some(read), false).ends_with("in use by a read of 1023.5 KiB at 512 B"));
        let over = write(15 << 10, 17 << 10, Reason::Overwrite);
        assert!(text(read, Some(over), false).ends_with(
            "its bytes were in use by a write of 2 KiB at 15 KiB, which overwrites written blocks"
        ));
        assert!(text(first, None, false).ends_with("in part, and another operation was before it"));
    }

    #[test]
    fn whole_files_in_words() {
        let appends = write(4096, 8192, Reason::Extends);
        let overwrites = Contender { exclusive: false, ..write(0, 512, Reason::Overwrite) };
        assert!(text(appends, Some(overwrites), true).ends_with(
            "it grows the file, for which it must hold the file exclusively; \
             a write of 512 B at 0 B held it shared, because it overwrites written blocks"
        ));
    }

    #[test]
    fn many_waits_are_one_explanation() {
        let cut = Operation::SetLen { size: 4096 };
        let cut = Contender { operation: cut, reason: Reason::SetsSize, exclusive: true };
        let (waited, total) = (Duration::from_millis(2), Duration::from_millis(5));
        let ino = InodeNo(12);
        let three =
            Explanation { ino, waiter: cut, holder: None, whole_file: false, waited, times: 3, total };
        assert_eq!(
            three.to_string(),
            "change of the size to 4 KiB in inode 12 waited 2.0 ms: it sets the size, \
             and another operation was before it (3 such waits, 5.0 ms in all)"
        );
    }
}

//! Statistics of operations on file data: counters, and explanations of waits.
//!
//! Admission reports to this module. No decision of the engine depends on these statistics.

mod active;
mod counters;
mod explanation;
mod units;
mod usage;
mod waits;

use std::fmt;
use std::time::Duration;

pub(crate) use active::{ActiveOperation, ActiveOperations};
pub(crate) use counters::Record;
pub use explanation::{Contender, Explanation};
pub(crate) use usage::{FileUsage, VolumeUsage};

use crate::operation::Reason;
use crate::policy::Policy;
use units::{About, Time};

/// Counters of operations on file data: of a volume since it was opened, or of a file since it was
/// loaded.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// use parext4::{AlignedBuf, OpenOptions, Reason};
///
/// let file = volume.open_direct("/file", &OpenOptions::read_write().create(true))?;
/// file.append(&AlignedBuf::zeroed(4096))?;
/// file.read_at(&mut AlignedBuf::zeroed(4096), 0)?;
/// let stats = file.stats();
/// assert_eq!((stats.admissions(Reason::Read).shared, stats.waits), (1, 0));
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The volume's policy.
    pub policy: Policy,
    /// Numbers of admitted operations, by [`Reason`].
    admissions: [Admissions; Reason::ALL.len()],
    /// Number of exclusive operations that would have waited, in the kernel's ext4, for all I/O in
    /// flight on the file.
    pub drains: u64,
    /// Number of times that an operation waited for other operations. An operation that waits
    /// again, because the file has changed meanwhile, counts again.
    pub waits: u64,
    /// Sum of the times that operations waited.
    pub waited: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
    /// Zeros written around data and after the end of the file, in bytes.
    pub bytes_zeroed: u64,
    /// Number of writes that converted unwritten blocks.
    pub conversions: u64,
    /// Number of these writes that shared one change of the map with other writes.
    pub conversions_merged: u64,
    /// Number of blocks that were converted.
    pub blocks_converted: u64,
    /// Number of times that blocks beside the data were zeroed and converted with it, because no
    /// block was free for the map to grow.
    pub zero_outs: u64,
    /// Number of NOWAIT operations that were refused because they would have blocked.
    pub nowait_refusals: u64,
}

/// Numbers of admitted operations, by mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admissions {
    /// Operations that held their range shared.
    pub shared: u64,
    /// Operations that held their range exclusively.
    pub exclusive: u64,
}

impl Admissions {
    /// Returns the sum of both modes.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.shared + self.exclusive
    }
}

impl Stats {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Returns the number of operations that were admitted for `reason`.
    #[must_use]
    pub const fn admissions(&self, reason: Reason) -> Admissions {
        self.admissions[reason as usize]
    }

    /// Returns the number of all operations that were admitted.
    #[must_use]
    pub fn admitted(&self) -> Admissions {
        self.admissions.iter().fold(Admissions::default(), |sum, one| Admissions {
            shared: sum.shared + one.shared,
            exclusive: sum.exclusive + one.exclusive,
        })
    }

    /// Returns the number of operations that held the whole file: all or none, by the policy.
    #[must_use]
    pub fn whole_file(&self) -> Admissions {
        if self.policy.locks_whole_file() { self.admitted() } else { Admissions::default() }
    }
}

/// Displays the statistics as a table for the terminal.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = if self.policy.locks_whole_file() { "the whole file" } else { "their own range" };
        writeln!(f, "policy {}: operations hold {held}", self.policy)?;
        writeln!(f, "{:52}{:>12}{:>12}", "operations, by what they do", "shared", "exclusive")?;
        for reason in Reason::ALL {
            let Admissions { shared, exclusive } = self.admissions(reason);
            if shared + exclusive > 0 {
                writeln!(f, "  {reason:50}{shared:>12}{exclusive:>12}")?;
            }
        }
        let Admissions { shared, exclusive } = self.admitted();
        writeln!(f, "  {:50}{shared:>12}{exclusive:>12}", "all")?;
        let (total, longest) = (Time(self.waited), Time(self.longest_wait));
        writeln!(f, "waits for other operations: {}, {total} in all, {longest} at most", self.waits)?;
        if self.policy.locks_whole_file() {
            writeln!(f, "times that ext4 would have waited for all I/O on the file: {}", self.drains)?;
        }
        let (writes, merged) = (self.conversions, self.conversions_merged);
        writeln!(
            f,
            "blocks converted to written: {}, by {writes} writes, of which {merged} shared one change of the map",
            self.blocks_converted
        )?;
        write!(f, "zeros written around data: {}", About(self.bytes_zeroed))?;
        if self.zero_outs > 0 {
            write!(f, "\nblocks zeroed because the map could not grow: {} times", self.zero_outs)?;
        }
        if self.nowait_refusals > 0 {
            write!(f, "\nrefused because they would have blocked: {}", self.nowait_refusals)?;
        }
        Ok(())
    }
}

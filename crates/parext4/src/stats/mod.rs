//! What operations on file data did, in numbers and in words.

mod counters;
mod explanation;
mod present;
mod units;
mod usage;
mod waits;

use std::fmt;
use std::time::Duration;

pub(crate) use counters::Record;
pub use explanation::{Explanation, Party};
pub(crate) use present::{Here, Present};
pub(crate) use usage::{FileUsage, VolumeUsage};

use crate::operation::Reason;
use crate::policy::Policy;
use units::{About, Time};

/// What the operations on file data did since the volume was opened, or on one file since it came into memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The volume's policy.
    pub policy: Policy,
    /// By [`Reason`].
    admissions: [Admissions; Reason::ALL.len()],
    /// Operations that were let through alone and would have waited, in the kernel's ext4, for all I/O in flight.
    pub drains: u64,
    /// How often an operation waited for others. One that must wait again, because the file changed while it
    /// waited, counts again.
    pub waits: u64,
    /// The time that operations waited, all together.
    pub waited: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
    /// Zeros written, in bytes: around data in blocks that held nothing, and behind the end of the file.
    pub bytes_zeroed: u64,
    /// Writes that made unwritten blocks written.
    pub conversions: u64,
    /// How many of those shared one change of the map with others.
    pub conversions_merged: u64,
    /// Blocks that became written.
    pub blocks_converted: u64,
    /// How often blocks beside the data were zeroed and made written with it, because there was no block for
    /// the map to grow.
    pub zero_outs: u64,
    /// Operations that were not to wait, and were refused for that.
    pub nowait_refusals: u64,
}

/// Operations that were let through, by what they held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admissions {
    /// Those that others could share it with.
    pub shared: u64,
    /// Those that had it alone.
    pub exclusive: u64,
}

impl Admissions {
    /// Both kinds.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.shared + self.exclusive
    }
}

impl Stats {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Operations that were let through for `reason`.
    #[must_use]
    pub const fn admissions(&self, reason: Reason) -> Admissions {
        self.admissions[reason as usize]
    }

    /// All operations that were let through.
    #[must_use]
    pub fn admitted(&self) -> Admissions {
        self.admissions.iter().fold(Admissions::default(), |sum, one| Admissions {
            shared: sum.shared + one.shared,
            exclusive: sum.exclusive + one.exclusive,
        })
    }

    /// Those that held the whole file, which is a matter of the policy.
    #[must_use]
    pub fn whole_file(&self) -> Admissions {
        if self.policy.locks_whole_file() { self.admitted() } else { Admissions::default() }
    }
}

/// A table for people.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = if self.policy.locks_whole_file() { "the whole file" } else { "their own range" };
        writeln!(f, "policy {}: operations hold {held}", self.policy)?;
        writeln!(f, "{:52}{:>12}{:>12}", "operations, by what they do", "shared", "alone")?;
        for reason in Reason::ALL {
            let Admissions { shared, exclusive } = self.admissions(reason);
            if shared + exclusive > 0 {
                writeln!(f, "  {reason:50}{shared:>12}{exclusive:>12}")?;
            }
        }
        let Admissions { shared, exclusive } = self.admitted();
        writeln!(f, "  {:50}{shared:>12}{exclusive:>12}", "all")?;
        let (total, longest) = (Time(self.waited), Time(self.longest_wait));
        writeln!(f, "waits for others: {}, {total} in all, {longest} at most", self.waits)?;
        if self.policy.locks_whole_file() {
            writeln!(f, "times that all I/O on the file had to end first: {}", self.drains)?;
        }
        let (writes, merged) = (self.conversions, self.conversions_merged);
        writeln!(
            f,
            "blocks made written: {}, by {writes} writes, {merged} of them together with others",
            self.blocks_converted
        )?;
        write!(f, "zeros written around data: {}", About(self.bytes_zeroed))?;
        if self.zero_outs > 0 {
            write!(f, "\nblocks zeroed for want of space in the map: {} times", self.zero_outs)?;
        }
        if self.nowait_refusals > 0 {
            write!(f, "\nrefused because they would have waited: {}", self.nowait_refusals)?;
        }
        Ok(())
    }
}

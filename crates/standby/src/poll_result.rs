//! [`PollResult`]: the result of one poll of a shared device.

use std::fmt;
use std::time::Duration;

use parext4::device::LockOwner;

/// Time that one request may take on a slow device. A slower poll proves nothing about the owner,
/// whose own writes may be as slow.
pub(crate) const SLOW: Duration = Duration::from_secs(5);

/// The result of one poll of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollResult {
    /// The client that holds the device's lock; `None` if no client holds it, or the device has no
    /// lock.
    pub lock: Option<LockOwner>,
    /// The volume's block of multi-mount protection (MMP).
    pub mmp: Mmp,
}

/// State of the block of multi-mount protection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mmp {
    /// The volume has no such block.
    Absent,
    /// The volume was closed.
    Closed,
    /// e2fsck checks the volume, or was killed while it did.
    Checked,
    /// A machine has the volume open.
    Open {
        /// Name of the machine.
        node: String,
        /// Number that the machine changes with each update of the block, its sign of life.
        sequence: u32,
        /// Time for which the number must not change before another machine may use the volume.
        wait: Duration,
        /// Time for which the number must not change before an owner counts as dead that the
        /// device's servers do not hear from.
        silent_after: Duration,
    },
}

impl PollResult {
    /// Returns the time without a sign of life after which the owner is gone; `None` if the volume
    /// has no owner that updates the block.
    ///
    /// On a device without a lock, the machine that the block names may just be opening the volume:
    /// it makes its number durable, and does not change it until its own wait is over. So a standby
    /// waits longer than that, or it would take the volume from that machine.
    pub fn wait(&self) -> Option<Duration> {
        match (&self.mmp, &self.lock) {
            (Mmp::Open { wait, .. }, Some(_)) => Some(*wait),
            (Mmp::Open { wait, .. }, None) => Some(*wait + SLOW),
            _ => None,
        }
    }

    /// Returns true if the other result shows the same owner, whatever its sign of life.
    pub fn has_owner_of(&self, other: &Self) -> bool {
        let name = |poll_result: &Self| poll_result.lock.as_ref().map(|owner| owner.name.clone());
        let node = |poll_result: &Self| match &poll_result.mmp {
            Mmp::Open { node, .. } => Some(node.clone()),
            _ => None,
        };
        name(self) == name(other) && node(self) == node(other)
    }
}

/// Names the owner, for messages.
impl fmt::Display for PollResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mmp {
            Mmp::Open { node, sequence, .. } => write!(f, "{node} (MMP sequence {sequence:#010x}")?,
            Mmp::Checked => f.write_str("e2fsck (")?,
            Mmp::Closed => f.write_str("no machine (MMP clean")?,
            Mmp::Absent => f.write_str("unknown (no MMP")?,
        }
        let comma = if self.mmp == Mmp::Checked { "" } else { ", " };
        match &self.lock {
            Some(owner) if owner.alive => write!(f, "{comma}lock of {})", owner.name),
            Some(owner) => write!(f, "{comma}lock of {}, which its servers do not hear)", owner.name),
            None => write!(f, "{comma}no lock)"),
        }
    }
}

//! Chooses which calls of a [`FaultDevice`](super::FaultDevice) fail, and how.

/// Calls that a plan counts and fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// All calls.
    #[default]
    Any,
    /// Reads.
    Reads,
    /// Writes and discards.
    Writes,
    /// Flushes.
    Flushes,
    /// Discards.
    Discards,
}

/// A call of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallKind {
    /// [`Device::read_at`](crate::Device::read_at).
    Read,
    /// [`Device::write_at`](crate::Device::write_at).
    Write,
    /// [`Device::flush`](crate::Device::flush).
    Flush,
    /// [`Device::discard`](crate::Device::discard).
    Discard,
}

impl FaultKind {
    /// Returns whether the plan counts this call.
    pub(super) fn covers(self, call: CallKind) -> bool {
        match self {
            Self::Any => true,
            Self::Reads => call == CallKind::Read,
            Self::Writes => matches!(call, CallKind::Write | CallKind::Discard),
            Self::Flushes => call == CallKind::Flush,
            Self::Discards => call == CallKind::Discard,
        }
    }
}

/// Calls that fail. The default fails none and counts all.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct FaultPlan {
    /// Number of the call that fails, counted from 1 over the calls of `kind` since the plan was
    /// armed.
    pub fail_at: Option<u64>,
    /// Calls that are counted and can fail.
    pub kind: FaultKind,
    /// Whether all later calls of `kind` fail too.
    pub sticky: bool,
    /// Whether a failing read or write first transfers the first half of its sectors, rounded down.
    /// Such a read fails like a read that the device ended early.
    pub torn: bool,
}

impl FaultPlan {
    /// Makes a plan that fails one call of any kind: number `call`, counted from 1.
    #[must_use]
    pub fn at(call: u64) -> Self {
        Self { fail_at: Some(call), ..Self::default() }
    }

    /// Sets [`kind`](field@Self::kind).
    #[must_use]
    pub fn kind(mut self, kind: FaultKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets [`sticky`](field@Self::sticky).
    #[must_use]
    pub fn sticky(mut self, sticky: bool) -> Self {
        self.sticky = sticky;
        self
    }

    /// Sets [`torn`](field@Self::torn).
    #[must_use]
    pub fn torn(mut self, torn: bool) -> Self {
        self.torn = torn;
        self
    }
}

/// A call that a plan made fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// Number of the call, counted as for [`FaultPlan::fail_at`].
    pub number: u64,
    /// Kind of the call.
    pub kind: CallKind,
    /// Offset on the device in bytes; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u64,
    /// Number of the device: 0, or 1 for one that
    /// [`FaultDevice::beside`](super::FaultDevice::beside) has made.
    pub device: u32,
}

//! A device that fails on demand: count the calls of a run, then fail each one in turn.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::Device;
use crate::iovec;

/// Which calls a plan counts and fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultKind {
    /// All of them.
    #[default]
    Any,
    /// Reads.
    Reads,
    /// Writes and discards.
    Writes,
    /// Flushes.
    Flushes,
}

/// A device call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// `read_at`
    Read,
    /// `write_at`
    Write,
    /// `flush`
    Flush,
    /// `discard`
    Discard,
}

impl FaultKind {
    fn covers(self, call: CallKind) -> bool {
        match self {
            Self::Any => true,
            Self::Reads => call == CallKind::Read,
            Self::Writes => matches!(call, CallKind::Write | CallKind::Discard),
            Self::Flushes => call == CallKind::Flush,
        }
    }
}

/// When calls fail. The default fails none and counts all.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultPlan {
    /// The call that fails, counted from 1 over the calls of `kind` since the plan was armed.
    pub fail_at: Option<u64>,
    /// The calls that count and can fail.
    pub kind: FaultKind,
    /// All later calls of `kind` fail too.
    pub sticky: bool,
    /// The failing call, if a write, first writes the first half of its sectors (rounded down).
    pub torn: bool,
}

impl FaultPlan {
    /// Fails the `call`-th call of any kind, counted from 1, and no other.
    pub fn at(call: u64) -> Self {
        Self { fail_at: Some(call), ..Self::default() }
    }
}

/// A call that was made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// Its number, counted as [`FaultPlan::fail_at`] does.
    pub number: u64,
    /// Which call.
    pub kind: CallKind,
    /// Byte offset; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u64,
}

/// Another device whose calls fail with `EIO` as a [`FaultPlan`] says.
#[derive(Debug)]
pub struct FaultDevice {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: FaultPlan,
    calls: u64,
    failed: Option<CallInfo>,
}

enum Verdict {
    Pass,
    Fail,
    Tear,
}

impl FaultDevice {
    /// Wraps `inner` with `plan` armed.
    pub fn new(inner: Arc<dyn Device>, plan: FaultPlan) -> Self {
        Self { inner, state: Mutex::new(State { plan, ..State::default() }) }
    }

    /// Starts `plan` with the count at zero and forgets what failed.
    pub fn arm(&self, plan: FaultPlan) {
        *self.state.lock() = State { plan, ..State::default() };
    }

    /// From now on nothing fails; the count and [`failed`](Self::failed) stay.
    pub fn disarm(&self) {
        let mut state = self.state.lock();
        state.plan = FaultPlan { kind: state.plan.kind, ..FaultPlan::default() };
    }

    /// Calls of the plan's kind since it was armed, failed ones included.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// The first call that the armed plan made fail.
    pub fn failed(&self) -> Option<CallInfo> {
        self.state.lock().failed
    }

    fn judge(&self, kind: CallKind, offset: u64, len: u64) -> Verdict {
        let mut state = self.state.lock();
        if !state.plan.kind.covers(kind) {
            return Verdict::Pass;
        }
        state.calls += 1;
        let number = state.calls;
        match state.plan.fail_at {
            Some(at) if number == at => {
                state.failed = Some(CallInfo { number, kind, offset, len });
                if state.plan.torn && kind == CallKind::Write { Verdict::Tear } else { Verdict::Fail }
            }
            Some(at) if number > at && state.plan.sticky => Verdict::Fail,
            _ => Verdict::Pass,
        }
    }

    fn tear(&self, offset: u64, bufs: &[IoSlice<'_>], len: u64) {
        let sector = u64::from(self.inner.sector_size());
        let half = len / sector / 2 * sector;
        // The caller is told EIO either way.
        let _ = self.inner.write_at(offset, &iovec::prefix(bufs, half));
    }
}

fn eio<T>() -> io::Result<T> {
    Err(rustix::io::Errno::IO.into())
}

impl Device for FaultDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        match self.judge(CallKind::Read, offset, iovec::total(bufs)?) {
            Verdict::Pass => self.inner.read_at(offset, bufs),
            Verdict::Fail | Verdict::Tear => eio(),
        }
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = iovec::total(bufs)?;
        match self.judge(CallKind::Write, offset, len) {
            Verdict::Pass => return self.inner.write_at(offset, bufs),
            Verdict::Fail => {}
            Verdict::Tear => self.tear(offset, bufs, len),
        }
        eio()
    }

    fn flush(&self) -> io::Result<()> {
        match self.judge(CallKind::Flush, 0, 0) {
            Verdict::Pass => self.inner.flush(),
            Verdict::Fail | Verdict::Tear => eio(),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.judge(CallKind::Discard, offset, len) {
            Verdict::Pass => self.inner.discard(offset, len),
            Verdict::Fail | Verdict::Tear => eio(),
        }
    }
}

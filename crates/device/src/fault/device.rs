//! The device that counts and fails calls.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use parking_lot::Mutex;

use super::plan::{CallInfo, CallKind, FaultPlan};
use crate::device::Device;
use crate::forward_device;
use crate::iovec;

/// A device that forwards calls to another device and fails them with `EIO` as its [`FaultPlan`] says.
///
/// It has no native queue, so that the plan also counts the requests of queues.
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

/// What happens to a call.
enum Action {
    Forward,
    Fail,
    /// Write the first half, then fail.
    Tear,
}

impl FaultDevice {
    /// Makes a device that forwards to `inner`, with `plan` armed.
    pub fn new(inner: Arc<dyn Device>, plan: FaultPlan) -> Self {
        Self { inner, state: Mutex::new(State { plan, ..State::default() }) }
    }

    /// Arms `plan` with the count at zero, and clears [`failed`](Self::failed).
    pub fn arm(&self, plan: FaultPlan) {
        *self.state.lock() = State { plan, ..State::default() };
    }

    /// Lets all later calls pass. The count goes on, and [`failed`](Self::failed) stays.
    pub fn disarm(&self) {
        let mut state = self.state.lock();
        state.plan = FaultPlan { kind: state.plan.kind, ..FaultPlan::default() };
    }

    /// Returns the number of calls of the plan's kind since it was armed, failed ones included.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Returns the first call that the armed plan made fail.
    pub fn failed(&self) -> Option<CallInfo> {
        self.state.lock().failed
    }

    /// Counts a call and returns what happens to it.
    fn count(&self, kind: CallKind, offset: u64, len: u64) -> Action {
        let mut state = self.state.lock();
        if !state.plan.kind.covers(kind) {
            return Action::Forward;
        }
        state.calls += 1;
        let number = state.calls;
        match state.plan.fail_at {
            Some(at) if number == at => {
                state.failed = Some(CallInfo { number, kind, offset, len });
                if state.plan.torn && kind == CallKind::Write { Action::Tear } else { Action::Fail }
            }
            Some(at) if number > at && state.plan.sticky => Action::Fail,
            _ => Action::Forward,
        }
    }

    /// Writes the first half of a request's sectors.
    fn tear(&self, offset: u64, bufs: &[IoSlice<'_>], len: u64) {
        let sector = u64::from(self.inner.sector_size());
        let half = len / sector / 2 * sector;
        // The call fails with EIO, whether this succeeds or not.
        let _ = self.inner.write_at(offset, &iovec::prefix(bufs, half));
    }
}

fn eio<T>() -> io::Result<T> {
    Err(rustix::io::Errno::IO.into())
}

impl Device for FaultDevice {
    forward_device!(this => this.inner; size, sector_size, network, read_only);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        match self.count(CallKind::Read, offset, iovec::total(bufs)?) {
            Action::Forward => self.inner.read_at(offset, bufs),
            Action::Fail | Action::Tear => eio(),
        }
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = iovec::total(bufs)?;
        match self.count(CallKind::Write, offset, len) {
            Action::Forward => return self.inner.write_at(offset, bufs),
            Action::Fail => {}
            Action::Tear => self.tear(offset, bufs, len),
        }
        eio()
    }

    fn flush(&self) -> io::Result<()> {
        match self.count(CallKind::Flush, 0, 0) {
            Action::Forward => self.inner.flush(),
            Action::Fail | Action::Tear => eio(),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.count(CallKind::Discard, offset, len) {
            Action::Forward => self.inner.discard(offset, len),
            Action::Fail | Action::Tear => eio(),
        }
    }
}

//! The device that counts and fails calls.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use parking_lot::Mutex;

use super::plan::{CallInfo, CallKind, FaultPlan};
use crate::aligned::AlignedBuf;
use crate::device::Device;
use crate::forward_device;
use crate::iovec::{self, Scatter};
use crate::short_transfer::end_of_file;

/// A device that forwards calls to another device and fails them with `EIO` as its [`FaultPlan`]
/// says.
///
/// It has no native queue, so that the plan also counts the requests of queues.
#[derive(Debug)]
pub struct FaultDevice {
    inner: Arc<dyn Device>,
    /// Number of the device: 0, or 1 for one that [`beside`](Self::beside) has made.
    number: u32,
    state: Arc<Mutex<FaultState>>,
}

#[derive(Debug, Default)]
struct FaultState {
    plan: FaultPlan,
    calls: u64,
    failed: Option<CallInfo>,
}

impl FaultState {
    /// Returns true if a call of this device was the first to fail.
    fn fails_on(&self, device: u32) -> bool {
        self.failed.is_some_and(|failed| failed.device == device)
    }
}

/// The effect of the plan on a call.
enum Action {
    Forward,
    Fail,
    /// Transfer the first half, then fail.
    Tear,
}

impl FaultDevice {
    /// Makes a device that forwards to `inner`, with `plan` armed.
    pub fn new(inner: Arc<dyn Device>, plan: FaultPlan) -> Self {
        Self { inner, number: 0, state: Arc::new(Mutex::new(FaultState { plan, ..FaultState::default() })) }
    }

    /// Makes a second device, which forwards to `inner`. The plan of this device counts the calls
    /// of both, in the order in which they come. If the plan fails all later calls too, it fails
    /// only calls of the device on which the first failure was.
    #[must_use]
    pub fn beside(&self, inner: Arc<dyn Device>) -> Self {
        Self { inner, number: self.number + 1, state: Arc::clone(&self.state) }
    }

    /// Arms `plan` with the count at zero, and clears [`failed`](Self::failed).
    pub fn arm(&self, plan: FaultPlan) {
        *self.state.lock() = FaultState { plan, ..FaultState::default() };
    }

    /// Lets all later calls pass. The device keeps counting, and [`failed`](Self::failed) stays.
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
                state.failed = Some(CallInfo { number, kind, offset, len, device: self.number });
                let has_halves = matches!(kind, CallKind::Read | CallKind::Write);
                if state.plan.torn && has_halves { Action::Tear } else { Action::Fail }
            }
            Some(at) if number > at && state.plan.sticky && state.fails_on(self.number) => Action::Fail,
            _ => Action::Forward,
        }
    }

    /// Returns the length of the first half of a request's sectors.
    fn half(&self, len: u64) -> u64 {
        let sector = u64::from(self.inner.sector_size());
        len / sector / 2 * sector
    }

    /// Reads the first half of a request's sectors. The rest of the buffers keeps its contents.
    fn cut_short(&self, offset: u64, bufs: &mut [IoSliceMut<'_>], len: u64) -> io::Result<()> {
        let half = self.half(len);
        let mut bytes = AlignedBuf::zeroed(usize::try_from(half).map_err(io::Error::other)?);
        self.inner.read_at(offset, &mut [IoSliceMut::new(&mut bytes)])?;
        Scatter::new(bufs).copy_from(&bytes);
        Err(end_of_file(offset + half))
    }
}

fn eio<T>() -> io::Result<T> {
    Err(rustix::io::Errno::IO.into())
}

impl Device for FaultDevice {
    forward_device!(this => this.inner; size, sector_size, network, read_only);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = iovec::total(bufs)?;
        match self.count(CallKind::Read, offset, len) {
            Action::Forward => self.inner.read_at(offset, bufs),
            Action::Fail => eio(),
            Action::Tear => self.cut_short(offset, bufs, len),
        }
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = iovec::total(bufs)?;
        match self.count(CallKind::Write, offset, len) {
            Action::Forward => return self.inner.write_at(offset, bufs),
            Action::Fail => {}
            // The call fails, whether or not this write succeeds.
            Action::Tear => drop(self.inner.write_at(offset, &iovec::prefix(bufs, self.half(len)))),
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

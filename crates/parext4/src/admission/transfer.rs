//! The steps by which an operation acquires the range that it needs. They never block, so a
//! blocking call ([`acquire_with`](InodeRef::acquire_with)) and a queue of operations drive the
//! same steps. The steps uphold I2, H11, H26 and H27.
//!
//! | step | does | next |
//! |---|---|---|
//! | [`request`](Transfer::request) | cuts a read at the size; announces or claims the end of the file, and makes the driver queue for the range under the same lock | the driver waits; or a read at the end is over |
//! | [`granted`](Transfer::granted) | checks under the range that the end of the file has not moved, writes back or drops conflicting pages, plans again | the driver prepares and moves the data; or requests again |
//! | [`widen`](Transfer::widen) | after a preparation that found no space, chooses a larger range for a write | the driver requests again |
//! | [`EndClaim::release`] | withdraws the announced or claimed end, then releases the range | over |

use std::ops::Deref;

use rangelock::{ByteRange, RangeLock};

use super::widening::{WidenedRange, widening};
use super::{Admission, plan};
use crate::allocator::Growth;
use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded, when_planted};
use crate::inode::Claim;
use crate::inode_ref::{Hold, InodeRef};
use crate::mapping::Runs;
use crate::operation::Operation;

/// Number of attempts after which a read holds its whole range instead of the part before the end
/// of the file.
const READ_ATTEMPTS: u32 = 3;
/// Number of attempts to widen a write after which it fails with [`Error::NoSpace`].
const WIDEN_ATTEMPTS: u32 = 64;

/// The state of an operation between its steps.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// The operation on its own bytes, before a write is widened.
    operation: Operation,
    at_end: AtEnd,
    claim: EndClaim,
    /// The range that a widened write fills with its data and zeros around it, because there is no
    /// space to split extents.
    widened: Option<ByteRange>,
    /// Number of times that a read has requested its range, that a write was widened, or that an
    /// append with a claim found its range too small.
    attempts: u32,
    /// The size of the file when a read was granted its range, bytes.
    size: u64,
}

/// The effect of the end of the file on an operation.
#[derive(Clone, Copy, Debug)]
enum AtEnd {
    /// A read stops at the end of the file, or at byte `wanted` if the file is longer.
    Stops { wanted: u64 },
    /// A write extends the file to byte `end` if it is shorter.
    Extends { end: u64 },
    /// An append of `len` bytes begins at the end of the file.
    Begins { len: u64 },
}

/// The end of the file that an operation has announced, or the bytes that it has claimed (H27).
#[derive(Debug, Default)]
pub(crate) enum EndClaim {
    #[default]
    None,
    /// The operation will extend the file to this byte.
    Announced(u64),
    /// The operation is an append that owns these bytes.
    Claimed(Claim),
}

/// A range to queue for.
#[derive(Debug)]
pub(crate) struct RangeRequest {
    pub operation: Operation,
    pub admission: Admission,
    /// Whether the operation announces or claims its end once the driver has queued for the range.
    pub claims_end: bool,
}

impl Transfer {
    /// Creates a transfer of an operation that sets the size, or that the end of the file does not
    /// concern.
    #[inline]
    pub(crate) fn new(operation: Operation) -> Self {
        Self::extending(operation, 0)
    }

    /// Creates a transfer of an operation that extends the file to byte `end` if the file is
    /// shorter.
    #[inline]
    pub(crate) fn extending(operation: Operation, end: u64) -> Self {
        Self::with(operation, AtEnd::Extends { end })
    }

    /// Creates a transfer of a read, which stops at the end of the file if its range reaches past
    /// that.
    #[inline]
    pub(crate) fn reading(operation: Operation) -> Self {
        Self::with(operation, AtEnd::Stops { wanted: operation.bytes().1 })
    }

    /// Creates a transfer of an append of `len` bytes, which performs `operation` at the end of the
    /// file.
    #[inline]
    pub(crate) fn appending(operation: Operation, len: u64) -> Self {
        Self::with(operation, AtEnd::Begins { len })
    }

    #[inline]
    fn with(operation: Operation, at_end: AtEnd) -> Self {
        Self { operation, at_end, claim: EndClaim::None, widened: None, attempts: 0, size: 0 }
    }

    /// Returns the offset of the first byte. For an append, it is valid once the range is
    /// requested.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.operation.bytes().0
    }

    /// Returns the offset after the last byte. For a read and an append, it is valid once the range
    /// is granted. If the file was truncated, a granted read may end before its offset.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.operation.bytes().1
    }

    /// Returns the number of bytes that a granted read returns.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        to_usize(self.end().saturating_sub(self.offset()))
    }

    /// Returns the size of the file when the read was granted its range, bytes.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the bytes that a write fills: its own, unless it is widened.
    #[inline]
    pub(crate) fn target(&self) -> ByteRange {
        self.widened.unwrap_or_else(|| ByteRange::new(self.offset(), self.end()))
    }

    /// Returns the policy by which blocks of a write are allocated.
    #[inline]
    pub(crate) fn growth(&self) -> Growth {
        match (self.widened, self.at_end) {
            (Some(_), _) => Growth::Exact,
            (None, AtEnd::Begins { .. }) => Growth::Append,
            (None, _) => Growth::Write,
        }
    }

    /// Returns the bytes that a write was widened to, if it was.
    #[inline]
    pub(crate) fn widened(&self) -> Option<ByteRange> {
        self.widened
    }

    /// Returns the operation for which the range is requested: the widened write, or the operation
    /// itself.
    #[inline]
    fn requested(&self) -> Operation {
        self.widened.map_or(self.operation, widening)
    }

    /// Chooses the range that the operation needs according to the facts known so far, and calls
    /// `place` to queue for it. An operation that reaches past the end of the file announces or
    /// claims its end under the lock under which `place` runs, so the order of ends is the order in
    /// which overlapping ranges are granted (H27). Keeps an end that was announced or claimed
    /// before. Returns `None` for a read that begins at or past the end of the file.
    ///
    /// # Errors
    /// The errors of `place`, of a corrupt map, and of an append whose offset or end is invalid. No
    /// new end is announced or claimed then.
    #[inline]
    pub(crate) fn request<T>(
        &mut self,
        node: &InodeRef,
        place: impl FnOnce(RangeRequest) -> Result<T>,
    ) -> Result<Option<T>> {
        match (self.at_end, &self.claim) {
            (AtEnd::Stops { wanted }, _) => {
                let size = node.inode.size();
                // A read does not wait for writers past the end, unless the end moves again and
                // again.
                let end = if self.attempts < READ_ATTEMPTS { wanted.min(size) } else { wanted };
                self.attempts += 1;
                if end <= self.offset() {
                    return Ok(None);
                }
                self.operation = self.operation.at(self.offset(), end);
            }
            (AtEnd::Begins { len }, EndClaim::None) => return self.claim_end(node, len, place).map(Some),
            (AtEnd::Extends { end }, EndClaim::None) if end > node.inode.size() => {
                return self.announce_end(node, end, place).map(Some);
            }
            _ => {}
        }
        let operation = self.requested();
        let admission = node.tentative_plan(operation)?;
        place(RangeRequest { operation, admission, claims_end: false }).map(Some)
    }

    fn claim_end<T>(
        &mut self,
        node: &InodeRef,
        len: u64,
        place: impl FnOnce(RangeRequest) -> Result<T>,
    ) -> Result<T> {
        // Loads the map before the lock of the tail is acquired.
        node.engine.block_map(&node.inode)?;
        let mut tail = node.inode.tail.lock();
        let offset = guarded!(Fault::AppendAtSize, tail.end(), node.inode.size());
        let operation = self.operation.at(offset, node.end_of(offset, len)?);
        if matches!(operation, Operation::Write { .. }) {
            node.check_offset(offset)?;
        }
        let admission = node.tentative_plan(operation)?;
        let placed = place(RangeRequest { operation, admission, claims_end: true })?;
        let mut claim = tail.claim(len);
        claim.offset = offset;
        (self.operation, self.claim) = (operation, EndClaim::Claimed(claim));
        Ok(placed)
    }

    fn announce_end<T>(
        &mut self,
        node: &InodeRef,
        end: u64,
        place: impl FnOnce(RangeRequest) -> Result<T>,
    ) -> Result<T> {
        // A widened write lies within the file.
        self.widened = None;
        node.engine.block_map(&node.inode)?;
        let mut tail = node.inode.tail.lock();
        let (operation, admission) = (self.operation, node.tentative_plan(self.operation)?);
        let placed = place(RangeRequest { operation, admission, claims_end: true })?;
        tail.announce(end);
        self.claim = EndClaim::Announced(end);
        Ok(placed)
    }

    /// Plans again under `hold`, because the file may have changed while the driver waited.
    /// `make_coherent` writes back or drops the pages that conflict with the operation and returns
    /// true if that may have changed blocks. The facts of the plan stay true while the range is
    /// held (I2). Returns `None` if the operation must release the range and request again. The
    /// operation keeps an announced end. It keeps a claim unless the size was set meanwhile, or
    /// other operations have written to its last sector: an abandoned claim would leave a gap
    /// before later appends.
    ///
    /// # Errors
    /// The errors of `make_coherent` and of a corrupt map. The claim is withdrawn then, while the
    /// range is still held.
    #[inline]
    pub(crate) fn granted<L: Deref<Target = RangeLock>>(
        &mut self,
        node: &InodeRef,
        hold: &Hold<L>,
        make_coherent: impl FnOnce(&InodeRef, &Hold<L>, Operation) -> Result<bool>,
    ) -> Result<Option<Granted>> {
        let granted = self.confirm(node, hold, make_coherent);
        if granted.is_err() {
            self.claim.withdraw(node, false);
        }
        granted
    }

    #[inline]
    fn confirm<L: Deref<Target = RangeLock>>(
        &mut self,
        node: &InodeRef,
        hold: &Hold<L>,
        make_coherent: impl FnOnce(&InodeRef, &Hold<L>, Operation) -> Result<bool>,
    ) -> Result<Option<Granted>> {
        if let EndClaim::Claimed(claim) = self.claim
            && !node.inode.tail.lock().holds(claim)
        {
            self.claim.withdraw(node, false);
            return Ok(None);
        }
        let granted = node.plan_held(self.requested(), hold, make_coherent)?;
        if granted.is_none() {
            self.attempts += u32::from(matches!(self.claim, EndClaim::Claimed(_)));
            when_planted!(Fault::ClaimAgain, self.claim.withdraw(node, false));
        }
        if guarded!(Fault::OvertakenClaimKept, self.is_overtaken(node), false) {
            self.claim.withdraw(node, false);
            return Ok(None);
        }
        let is_enough = granted.is_some()
            && self.confirm_announcement(node)
            && self.confirm_widened(node)?
            && self.confirm_size(node);
        if is_enough { Ok(granted) } else { Ok(None) }
    }

    /// Returns true if other operations have extended the file while a direct append queued again,
    /// and the append would overwrite their data in its last sector with the zeros that fill this
    /// sector. The append must then claim again.
    #[inline]
    fn is_overtaken(&self, node: &InodeRef) -> bool {
        let queued_again = matches!(self.claim, EndClaim::Claimed(_)) && self.attempts > 0;
        let is_direct = || matches!(self.operation, Operation::Write { .. });
        let fills_sector = || !self.end().is_multiple_of(node.engine.device().sector_size().into());
        queued_again && is_direct() && fills_sector() && node.inode.size() > self.end()
    }

    /// Returns false if the file was truncated while the operation waited, so that it now extends
    /// the file and must announce its end.
    #[inline]
    fn confirm_announcement(&self, node: &InodeRef) -> bool {
        match (&self.claim, self.at_end) {
            (EndClaim::None, AtEnd::Extends { end }) => end <= node.inode.size(),
            _ => true,
        }
    }

    /// Returns false, and discards the widened range, if other operations have changed the extents
    /// meanwhile.
    #[inline]
    fn confirm_widened(&mut self, node: &InodeRef) -> Result<bool> {
        let Some(wide) = self.widened else { return Ok(true) };
        let now = node.widened_range(self.offset(), self.end())?;
        let unchanged = guarded!(Fault::WidenUnchecked, now == WidenedRange::Range(wide), true);
        if !unchanged {
            self.widened = None;
        }
        Ok(unchanged)
    }

    /// Sets the end of a read. Returns false if the file has grown past the range that the read
    /// requested: a read that stopped there would return half of the write that grew the file.
    ///
    /// The size is loaded once, after dirty pages of the range were written back, because a writer
    /// past the range may raise it at any moment, and the read must not read the range that the
    /// writer holds (I2).
    #[inline]
    fn confirm_size(&mut self, node: &InodeRef) -> bool {
        let AtEnd::Stops { wanted } = self.at_end else { return true };
        let held = guarded!(Fault::ReadPastRange, self.end(), wanted);
        let size = guarded!(Fault::StaleSize, node.inode.size(), held);
        self.size = size;
        self.operation = self.operation.at(self.offset(), wanted.min(size));
        size <= held || held == wanted
    }

    /// Chooses a larger range for a write whose preparation found no space: a full volume can still
    /// write to blocks that are allocated already ([`widening`](super::widening)). Withdraws the
    /// announced end, because a widened write lies within the file. The driver then releases the
    /// range and requests again.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the write cannot be widened.
    pub(crate) fn widen(&mut self, node: &InodeRef) -> Result<()> {
        self.attempts += 1;
        let can_widen =
            matches!((self.at_end, self.operation), (AtEnd::Extends { .. }, Operation::Write { .. }));
        if !can_widen || self.widened.is_some() || self.attempts > WIDEN_ATTEMPTS {
            return Err(Error::NoSpace);
        }
        self.widened = match node.widened_range(self.offset(), self.end())? {
            WidenedRange::Range(wide) => Some(wide),
            WidenedRange::Itself => None,
            WidenedRange::NoWay => return Err(Error::NoSpace),
        };
        self.claim.withdraw(node, false);
        Ok(())
    }

    /// Returns the announced or claimed end, for the caller to withdraw.
    #[inline]
    pub(crate) fn take_claim(&mut self) -> EndClaim {
        std::mem::take(&mut self.claim)
    }

    /// Ends an operation that holds its range: see [`EndClaim::release`].
    pub(crate) fn release<L: Deref<Target = RangeLock>>(
        &mut self,
        node: &InodeRef,
        hold: &mut Hold<L>,
        done: bool,
    ) {
        self.claim.release(node, hold, done);
    }

    /// Ends an operation that holds no range: withdraws its announced end or its claim.
    pub(crate) fn withdraw(&mut self, node: &InodeRef) {
        self.claim.withdraw(node, false);
    }
}

impl EndClaim {
    /// Withdraws an announced end, and a claim, which stays in the file if the append is `done`.
    /// Idempotent.
    #[inline]
    pub(crate) fn withdraw(&mut self, node: &InodeRef, done: bool) {
        if matches!(self, Self::None) || guarded!(Fault::ClaimLeaked, false, !done) {
            return;
        }
        let (mut tail, size) = (node.inode.tail.lock(), node.inode.size());
        match std::mem::take(self) {
            Self::None => {}
            Self::Announced(end) => tail.withdraw(end, size),
            Self::Claimed(claim) => tail.end_claim(claim, done, size),
        }
    }

    /// Withdraws the claim, and then releases the range: the next operation that sets the size must
    /// not find the end still announced (H27).
    #[inline]
    pub(crate) fn release<L: Deref<Target = RangeLock>>(
        &mut self,
        node: &InodeRef,
        hold: &mut Hold<L>,
        done: bool,
    ) {
        when_planted!(Fault::WithdrawLate, hold.release());
        self.withdraw(node, done);
        hold.release();
    }
}

/// The plan that was made under the granted range.
#[derive(Debug)]
pub(crate) struct Granted {
    pub admission: Admission,
    /// The mapping of the blocks of a write; empty for every other operation.
    pub runs: Runs,
}

impl InodeRef {
    /// Plans `operation` under a hold, and plans again if `make_coherent` may have changed blocks.
    /// Returns `None` if the operation now needs a larger range or another mode. Keeps a range that
    /// is larger than needed.
    #[inline]
    fn plan_held<L: Deref<Target = RangeLock>>(
        &self,
        operation: Operation,
        hold: &Hold<L>,
        make_coherent: impl FnOnce(&Self, &Hold<L>, Operation) -> Result<bool>,
    ) -> Result<Option<Granted>> {
        let (range, mode) = hold.granted();
        let plan_now = || -> Result<Option<Granted>> {
            let facts = self.facts(operation)?;
            let admission = plan(operation, &facts.state, self.engine.policy());
            Ok(admission.is_met_by(range, mode).then_some(Granted { admission, runs: facts.runs }))
        };
        let mut granted = plan_now()?;
        // Write-back allocates and converts the blocks of dirty pages, so the first plan may be
        // outdated.
        if granted.is_some() && make_coherent(self, hold, operation)? {
            granted = plan_now()?;
        }
        if let Some(Granted { admission, .. }) = &granted {
            self.record().admitted(admission.reason, mode, admission.drains);
        }
        Ok(granted)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;

//! The first steps of a queued operation: the checks, and the [steps](crate::admission::Transfer)
//! to its range.

use parext4_format::inode::InodeFlags;
use rangelock::{ByteRange, OwnedRangeGuard};

use super::super::DirectFile;
use super::IoQueue;
use super::mailbox::Delivery;
use super::pending::{Kind, Pending};
use super::transfer::Started;
use crate::admission::{Granted, RangeRequest};
use crate::block_io::{DetachedConversion, PendingConversion};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::inode_ref::Hold;
use crate::sync::Arc;

/// The outcome of a request for a range.
enum Requested {
    Held(OwnedRangeGuard),
    /// The thread that grants the range hands it to the queue.
    Parked,
}

impl IoQueue {
    /// Checks a new operation and advances it as far as it goes without waiting.
    pub(super) fn begin(&mut self, key: usize) -> Result<()> {
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        match op.kind {
            Kind::SyncData | Kind::SyncAll => return self.begin_sync(key),
            Kind::Read => drop(file.begin_read()?),
            Kind::Write => drop(file.begin_change(file.refusing)?),
            Kind::Append => drop(file.begin_change(InodeFlags::IMMUTABLE)?),
        }
        let available = op.buf.as_ref().map_or(0, |buf| buf.len());
        if op.len > available {
            return Err(Error::invalid(format_args!("{} bytes of a buffer of {available}", op.len)));
        }
        if op.kind != Kind::Append {
            file.node.check_offset(op.transfer.offset())?;
        }
        match op.kind {
            Kind::Read => op.shorten_read(file.node.readable(op.transfer.offset(), op.len)),
            Kind::Write => {
                file.node.end_of(op.transfer.offset(), op.len as u64)?;
            }
            Kind::Append | Kind::SyncData | Kind::SyncAll => {}
        }
        if op.len == 0 {
            let result = if op.kind == Kind::Append { file.size() } else { 0 };
            self.finish(key, Ok(result));
            return Ok(());
        }
        // The map is loaded before any lock is acquired.
        let start = if op.kind == Kind::Append { file.size() } else { op.transfer.offset() };
        let bytes = ByteRange::new(start, start.saturating_add(op.len as u64));
        if op.nowait && !file.inode().is_block_map_loaded(file.node.blocks_of(bytes)) {
            return Err(Error::WouldBlock("the file's map is not in memory"));
        }
        self.engine.block_map(file.inode())?;
        if op.kind == Kind::Read && file.inode().has_verity() {
            return self.begin_verified(key);
        }
        if op.kind != Kind::Read && self.goes_to_inode(key)? {
            return self.begin_inline(key);
        }
        self.advance(key, None)
    }

    /// Advances an operation, which holds `guard` if it was granted, until it is parked, on the
    /// device or over.
    pub(super) fn advance(&mut self, key: usize, mut guard: Option<OwnedRangeGuard>) -> Result<()> {
        loop {
            if guard.is_none() {
                guard = match self.request(key)? {
                    None => {
                        self.finish(key, Ok(0));
                        return Ok(());
                    }
                    Some(Requested::Parked) => return Ok(()),
                    Some(Requested::Held(guard)) => Some(guard),
                };
            }
            let Some(guard) = guard.take() else { continue };
            if self.granted(key, guard)? == Started::Yes {
                return Ok(());
            }
        }
    }

    /// Requests the range that the operation needs according to the facts known now. Returns `None`
    /// for a read at the end of the file.
    fn request(&mut self, key: usize) -> Result<Option<Requested>> {
        let op = &mut self.ops[key];
        let id = op.id(key);
        let (file, mailbox) = (self.files.get(op.file), &self.mailbox);
        let Pending { transfer, here, conversion, nowait, .. } = op;
        transfer.request(&file.node, |request| {
            let admission = request.admission;
            *here = file.node.enter_queued(request.operation, &admission);
            let ranges = &file.inode().ranges;
            if let Some(guard) = ranges.try_lock_owned(admission.range, admission.mode) {
                if *nowait && request.claims_end {
                    guarded!(Fault::NowaitClaims, check_nowait(file, &request, &guard, conversion)?);
                }
                return Ok(Requested::Held(guard));
            }
            if *nowait {
                return Err(Error::WouldBlock("another operation holds part of the range"));
            }
            let mailbox = Arc::clone(mailbox);
            // If the range was released since, the lock grants it at once.
            ranges.lock_with(admission.range, admission.mode, move |guard| {
                mailbox.deliver(id, Delivery::Range(guard));
            });
            Ok(Requested::Parked)
        })
    }

    /// Advances the parked operations that other threads have resumed.
    pub(super) fn take_deliveries(&mut self) {
        loop {
            let deliveries = self.mailbox.take_all();
            if deliveries.is_empty() {
                return;
            }
            for (id, delivery) in deliveries {
                // The operation may have been cancelled since.
                if self.ops.get(id.key).is_none_or(|op| op.serial != id.serial) {
                    continue;
                }
                let result = match delivery {
                    Delivery::Synced(result) => {
                        self.finish(id.key, result.map(|()| 0));
                        continue;
                    }
                    Delivery::Inline(buf, result) => self.end_inline(id.key, buf, result),
                    Delivery::Verified(buf, result) => {
                        self.end_verified(id.key, buf, result);
                        continue;
                    }
                    Delivery::Range(guard) => self.advance(id.key, Some(guard)),
                };
                if let Err(error) = result {
                    self.finish(id.key, Err(error));
                }
            }
        }
    }

    /// Starts an operation that holds its range, or has it request again.
    fn granted(&mut self, key: usize, guard: OwnedRangeGuard) -> Result<Started> {
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        if let Some(waited) = guard.waited() {
            file.node.note_wait(waited, op.here.as_ref());
        }
        let (hold, nowait) = (Hold::new(guard), op.nowait);
        let granted = op.transfer.granted(&file.node, &hold, |node, hold, operation| {
            // A NOWAIT operation writes nothing back, so it changes no block.
            if nowait {
                node.check_coherent(operation).map(|()| false)
            } else {
                node.make_coherent(hold, operation)
            }
        });
        let Some(Granted { admission, runs }) = granted? else { return Ok(Started::RequestAgain) };
        (op.hold, op.runs) = (Some(hold), runs);
        self.transfer(key, &admission)
    }
}

/// Refuses a NOWAIT operation that extends the file, if it would have to wait for its blocks, for
/// what its completion needs, or for cached pages. It holds its range, so the answer stays true,
/// and has not announced or claimed its end yet: other appends start after that end, so a later
/// refusal would leave a gap (H26).
fn check_nowait(
    file: &DirectFile,
    &RangeRequest { operation, .. }: &RangeRequest,
    guard: &OwnedRangeGuard,
    conversion: &mut Option<DetachedConversion>,
) -> Result<()> {
    let admission = file.node.tentative_plan(operation)?;
    if !admission.is_met_by(guard.range(), guard.mode()) {
        return Err(Error::WouldBlock("the range that it needs has changed"));
    }
    if admission.zero_tail {
        return Err(Error::WouldBlock("the rest of the last block must be zeroed first"));
    }
    guarded!(Fault::NowaitPagesLate, file.node.check_coherent(operation)?);
    drop(
        conversion.take().map(|conversion| PendingConversion::attach(conversion, file.engine().allocator())),
    );
    let (offset, end) = operation.bytes();
    *conversion = file.node.reserve_at_once(offset, end)?;
    Ok(())
}

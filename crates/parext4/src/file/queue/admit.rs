//! The first steps of a queue's operation: checks, its place in the queue of ranges, and the range itself.

use parext4_format::inode::InodeFlags;
use rangelock::{ByteRange, Mode, OwnedRangeGuard};

use super::super::DirectFile;
use super::IoQueue;
use super::parked::Given;
use super::pending::{Kind, Pending, Stake};
use crate::admission::Admission;
use crate::block_io::Debt;
use crate::body::Runs;
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::file::direct::{READ_ATTEMPTS, WIDEN_ATTEMPTS, WidenedRange};
use crate::operation::Operation;
use crate::sync::Arc;

/// What came of asking for a range.
enum Asked {
    Held(OwnedRangeGuard),
    /// Whoever grants it will say so.
    Parked,
}

impl IoQueue {
    /// Checks a new operation and asks for its range.
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
            file.check_offset(op.offset)?;
            op.end = file.end_of(op.offset, op.len as u64)?;
        }
        if op.len == 0 {
            let result = if op.kind == Kind::Append { file.size() } else { 0 };
            self.finish(key, Ok(result));
            return Ok(());
        }
        // The map is loaded before any lock is taken.
        if op.nowait && !file.inode().is_map_loaded() {
            return Err(Error::WouldBlock("the file's map is not in memory"));
        }
        self.engine.map(file.inode())?;
        self.ask(key)
    }

    /// Asks for the range that the operation needs as far as one can see now.
    pub(super) fn ask(&mut self, key: usize) -> Result<()> {
        let op = &self.ops[key];
        let asked = match op.kind {
            Kind::Read => return self.ask_to_read(key),
            Kind::Append => self.ask_to_append(key)?,
            _ if op.end > self.files.get(op.file).size() => self.ask_to_extend(key)?,
            _ => {
                let file = self.files.get(op.file);
                let operation = Operation::Write { offset: op.offset, end: op.end };
                let admission = file.node.tentative_plan(operation)?;
                self.ask_for(key, &admission)?
            }
        };
        self.asked(key, asked)
    }

    fn asked(&mut self, key: usize, asked: Asked) -> Result<()> {
        match asked {
            Asked::Held(guard) => self.granted(key, guard),
            Asked::Parked => Ok(()),
        }
    }

    fn ask_to_read(&mut self, key: usize) -> Result<()> {
        let op = &mut self.ops[key];
        let (wanted, size) = (op.offset + op.len as u64, self.files.get(op.file).size());
        // As `DirectFile::read_at` does.
        op.end = if op.attempts < READ_ATTEMPTS { wanted.min(size) } else { wanted };
        op.attempts += 1;
        if op.end <= op.offset {
            self.finish(key, Ok(0));
            return Ok(());
        }
        let operation = Operation::Read { offset: op.offset, end: op.end };
        let admission = self.files.get(op.file).node.tentative_plan(operation)?;
        let asked = self.ask_for(key, &admission)?;
        self.asked(key, asked)
    }

    /// The place in the queue of ranges is taken in the moment in which the new end is announced.
    fn ask_to_extend(&mut self, key: usize) -> Result<Asked> {
        let op = &self.ops[key];
        let (offset, end) = (op.offset, op.end);
        let inode = self.files.inode(op.file);
        let mut tail = inode.tail.lock();
        let admission = self.files.get(op.file).node.tentative_plan(Operation::Write { offset, end })?;
        let asked = self.ask_for(key, &admission)?;
        self.check_at_once(key, &asked)?;
        tail.announce(end);
        self.ops[key].stake = Stake::Announced(end);
        Ok(asked)
    }

    /// As [`ask_to_extend`](Self::ask_to_extend), at the end of the file.
    fn ask_to_append(&mut self, key: usize) -> Result<Asked> {
        let inode = self.files.inode(self.ops[key].file);
        let mut tail = inode.tail.lock();
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        op.offset = tail.end();
        file.check_offset(op.offset)?;
        op.end = file.end_of(op.offset, op.len as u64)?;
        let admission = file.node.tentative_plan(op.operation())?;
        let asked = self.ask_for(key, &admission)?;
        self.check_at_once(key, &asked)?;
        let op = &mut self.ops[key];
        op.stake = Stake::Claimed(tail.claim(op.len as u64));
        Ok(asked)
    }

    /// Refuses a NOWAIT operation that extends the file, if it would have to wait for its blocks, for what its
    /// completion needs, or for cached pages. The caller holds the operation's range, so the answer stays true, and has
    /// not announced its end yet: other appends start after an announced end, so a later refusal would leave a gap
    /// (H26).
    fn check_at_once(&mut self, key: usize, asked: &Asked) -> Result<()> {
        let op = &mut self.ops[key];
        let Asked::Held(guard) = asked else { return Ok(()) };
        if !op.nowait || planted(Fault::NowaitClaims) {
            return Ok(());
        }
        let file = self.files.get(op.file);
        let admission = file.node.tentative_plan(op.operation())?;
        if !admission.is_met_by(guard.range(), guard.mode()) {
            return Err(Error::WouldBlock("the range that it needs has changed"));
        }
        if admission.zero_tail {
            return Err(Error::WouldBlock("the rest of the last block must be zeroed first"));
        }
        if !planted(Fault::NowaitPagesLate) {
            file.node.check_coherent(op.operation())?;
        }
        op.return_debt(file);
        op.debt = file.node.borrow_at_once(op.offset, op.end)?;
        Ok(())
    }

    /// On a full volume a write may have to fill more than its own bytes, which needs another range.
    pub(super) fn ask_to_widen(&mut self, key: usize) -> Result<()> {
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        op.attempts += 1;
        let wide = match file.widened(op.offset, op.end)? {
            _ if op.attempts > WIDEN_ATTEMPTS => return Err(Error::NoSpace),
            WidenedRange::NoWay => return Err(Error::NoSpace),
            WidenedRange::Range(wide) => Some(wide),
            WidenedRange::Itself => None,
        };
        drop(op.guard.take());
        self.ask_again(key, wide)
    }

    /// Asks for what it needs by now, or for all of `wide`. It keeps its place at the end of the file if it has one: see
    /// `DirectFile::append_with`.
    fn ask_again(&mut self, key: usize, wide: Option<ByteRange>) -> Result<()> {
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        op.wide = wide;
        if wide.is_none() && !op.keeps_place(file) {
            op.settle(file, false);
            return self.ask(key);
        }
        let admission = file.node.tentative_plan(op.operation())?;
        let asked = self.ask_for(key, &admission)?;
        self.asked(key, asked)
    }

    fn ask_for(&mut self, key: usize, admission: &Admission) -> Result<Asked> {
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        op.here = file.node.enter_queued(op.operation(), admission);
        let ranges = &file.inode().ranges;
        if let Some(guard) = ranges.try_lock_owned(admission.range, admission.mode) {
            return Ok(Asked::Held(guard));
        }
        if op.nowait {
            return Err(Error::WouldBlock("another operation holds part of the range"));
        }
        let (parked, id) = (Arc::clone(&self.parked), op.id(key));
        // If it was released just now this is told at once.
        ranges.lock_with(admission.range, admission.mode, move |guard| parked.give(id, Given::Range(guard)));
        Ok(Asked::Parked)
    }

    /// Goes on with operations that were given what they waited for.
    pub(super) fn take_parked(&mut self) {
        loop {
            let given = self.parked.take();
            if given.is_empty() {
                return;
            }
            for (id, given) in given {
                // It may have been cancelled meanwhile.
                if self.ops.get(id.key).is_none_or(|op| op.serial != id.serial) {
                    continue;
                }
                let result = match given {
                    Given::Synced(result) => {
                        self.finish(id.key, result.map(|()| 0));
                        continue;
                    }
                    Given::Range(guard) => self.granted(id.key, guard),
                };
                if let Err(error) = result {
                    self.finish(id.key, Err(error));
                }
            }
        }
    }

    /// Goes on with an operation that has the range that it asked for, or asks again if that is not enough.
    fn granted(&mut self, key: usize, guard: OwnedRangeGuard) -> Result<()> {
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        if let Some(waited) = guard.waited() {
            file.node.note_wait(waited, op.here.as_ref());
        }
        match op.confirm(file, &guard)? {
            Some((admission, runs)) => {
                (op.guard, op.runs) = (Some(guard), runs);
                self.transfer(key, &admission)?;
                if planted(Fault::ReleaseAtSubmission)
                    && let Some(op) = self.ops.get_mut(key)
                {
                    op.guard = None;
                }
                Ok(())
            }
            None => {
                drop(guard);
                self.ask_again(key, None)
            }
        }
    }
}

impl Pending {
    /// The plan under the range that is held; `None` if the operation must ask again.
    fn confirm(&mut self, file: &DirectFile, guard: &OwnedRangeGuard) -> Result<Option<(Admission, Runs)>> {
        let (range, mode) = (guard.range(), guard.mode());
        if self.kind == Kind::Read {
            return self.confirm_read(file, guard);
        }
        // The size may have been set while it waited.
        let stale = match self.stake {
            Stake::Claimed(claim) => !file.inode().tail.lock().holds(claim),
            Stake::Announced(_) => false,
            Stake::None => self.end > file.size(),
        };
        // Another write may have been there meanwhile.
        if stale {
            return Ok(None);
        }
        self.check_coherent(file)?;
        let confirmed = file.node.confirm(self.operation(), range, mode)?;
        if let Some(wide) = self.wide
            && file.widened(self.offset, self.end)? != WidenedRange::Range(wide)
        {
            return Ok(None);
        }
        Ok(confirmed)
    }

    /// Like [`confirm`](Self::confirm), for a read, and sets its end: the size is loaded after the dirty pages in its
    /// range were written back, because that takes time.
    fn confirm_read(
        &mut self,
        file: &DirectFile,
        guard: &OwnedRangeGuard,
    ) -> Result<Option<(Admission, Runs)>> {
        debug_assert_eq!(guard.mode(), Mode::Shared, "reads share their range");
        self.check_coherent(file)?;
        let confirmed = file.node.confirm(self.operation(), guard.range(), guard.mode())?;
        let wanted = self.offset + self.len as u64;
        let held = if planted(Fault::EndUnheld) { wanted } else { self.end };
        let Some((end, size)) = file.end_under(held, wanted) else { return Ok(None) };
        file.check_len(self.len as u64, end < wanted || end == size)?;
        self.end = end;
        Ok(confirmed)
    }

    /// An error if it must not wait and would have to for pages.
    fn check_coherent(&self, file: &DirectFile) -> Result<()> {
        if self.nowait { file.node.check_coherent(self.operation()) } else { Ok(()) }
    }

    /// Whether its place at the end of the file is its own still.
    fn keeps_place(&self, file: &DirectFile) -> bool {
        match self.stake {
            Stake::None => false,
            Stake::Announced(_) => true,
            Stake::Claimed(claim) => file.inode().tail.lock().holds(claim) && !planted(Fault::ClaimAgain),
        }
    }

    /// Gives back what was borrowed for its completion.
    pub(super) fn return_debt(&mut self, file: &DirectFile) {
        drop(self.debt.take().map(|debt| Debt::attach(debt, &file.engine().allocator)));
    }

    /// Takes back, or makes good, what was said to appends.
    pub(super) fn settle(&mut self, file: &DirectFile, used: bool) {
        match std::mem::replace(&mut self.stake, Stake::None) {
            Stake::None => {}
            Stake::Announced(end) => file.inode().tail.lock().withdraw(end, file.size()),
            Stake::Claimed(claim) => file.inode().tail.lock().settle(claim, used, file.size()),
        }
    }
}

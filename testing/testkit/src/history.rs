//! The record of the operations of threads on one file: every change and every read, with the times
//! between which it took effect. Offsets and sizes are in sectors.

#![allow(missing_docs, reason = "the fields and variants explain themselves")]

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use crate::sector::{SECTOR, Seen, Stamp, identify_all};

/// A logical clock, shared by all threads.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// Returns the next time.
    ///
    /// Relaxed, and fenced for the compiler only: stronger orderings would order the threads for
    /// ThreadSanitizer, and hide from it the races of the engine. On x86-64 the instruction is a
    /// full fence.
    pub fn tick(&self) -> u64 {
        compiler_fence(Ordering::SeqCst);
        let now = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        compiler_fence(Ordering::SeqCst);
        now
    }
}

/// The effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Sectors `first..end` were overwritten with the change's stamp.
    Write { first: u64, end: u64, stamp: Stamp, append: bool },
    /// The file was truncated to `size`, or extended with zeros up to it.
    SetLen { size: u64 },
    /// The size grew to `end`, if it was smaller.
    Allocate { end: u64 },
    /// Sectors `first..end` became zeros. If `grows`, the size changed as by [`Effect::Allocate`].
    Zero { first: u64, end: u64, grows: bool },
}

impl Effect {
    /// Returns the minimum size of the file after the change; for [`Effect::SetLen`] the exact
    /// size.
    pub fn end(&self) -> u64 {
        match *self {
            Self::Write { end, .. } | Self::Allocate { end } | Self::Zero { end, grows: true, .. } => end,
            Self::Zero { .. } => 0,
            Self::SetLen { size } => size,
        }
    }
}

/// A change that succeeded. It took effect between `start` and `end`.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The call, for messages.
    pub way: &'static str,
    pub effect: Effect,
    pub start: u64,
    pub end: u64,
}

/// Sectors `first..end` with the same content.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub first: u64,
    pub end: u64,
    pub seen: Seen,
}

/// A read that succeeded. It took effect between `start` and `end`.
#[derive(Clone, Debug)]
pub struct Read {
    /// The call, for messages.
    pub way: &'static str,
    pub first: u64,
    /// End of the request.
    pub wanted: u64,
    /// End of the data that was returned.
    pub end_of_data: u64,
    pub runs: Vec<Run>,
    pub start: u64,
    pub end: u64,
}

/// The changes and reads of one thread.
#[derive(Debug, Default)]
pub struct Log {
    /// The call that comes next.
    pub way: &'static str,
    pub changes: Vec<Change>,
    pub reads: Vec<Read>,
}

impl Log {
    /// Adds a change that succeeded.
    pub fn changed(&mut self, start: u64, end: u64, effect: Effect) {
        self.changes.push(Change { way: self.way, effect, start, end });
    }

    /// Adds a read from sector `first` up to `wanted` that returned `bytes`.
    ///
    /// # Errors
    /// If the bytes are not sectors that were written there.
    pub fn saw(
        &mut self,
        (start, end): (u64, u64),
        file: u32,
        (first, wanted): (u64, u64),
        bytes: &[u8],
    ) -> Result<(), String> {
        let seen = identify_all(bytes, file, first)?;
        let end_of_data = first + (bytes.len() / SECTOR) as u64;
        let mut runs: Vec<Run> = Vec::new();
        for (number, seen) in (first..).zip(seen) {
            match runs.last_mut() {
                Some(run) if run.seen == seen => run.end = number + 1,
                _ => runs.push(Run { first: number, end: number + 1, seen }),
            }
        }
        self.reads.push(Read { way: self.way, first, wanted, end_of_data, runs, start, end });
        Ok(())
    }

    /// Adds the log of another thread.
    pub fn append(&mut self, mut other: Self) {
        self.changes.append(&mut other.changes);
        self.reads.append(&mut other.reads);
    }
}

//! A log of what reached the device, from which the states a crash can leave are rebuilt.
//!
//! A write is logged when it *completes*. A flush is logged when it completes too, but makes durable only what
//! had completed when it was *issued*. So between two flushes the writes that a crash may lose are those logged
//! from the issue of the first to the completion of the second: an *epoch*. Epochs overlap where writes
//! completed while a flush ran.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::Device;
use crate::iovec::{self, Gather};
use crate::mem::MemDevice;

/// Something that a [`RecordingDevice`] saw succeed.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes written.
    Write {
        /// Byte offset.
        offset: u64,
        /// What was written.
        bytes: Arc<[u8]>,
    },
    /// Bytes discarded.
    Discard {
        /// Byte offset.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A flush; events with an index below `covers` are durable once it is logged.
    Flush {
        /// The log's length when the flush was issued.
        covers: usize,
    },
}

/// Another device, with a log of its successful writes, discards and flushes.
///
/// Failed calls leave no event, though a failed write may have changed bytes: put fault injection above the
/// recorder, not below.
#[derive(Debug)]
pub struct RecordingDevice {
    inner: Arc<dyn Device>,
    log: Mutex<Vec<Event>>,
}

impl RecordingDevice {
    /// Records `inner` from now on. To replay later, keep the state it starts from ([`MemDevice::fork`] or
    /// [`MemDevice::copy_of`]).
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, log: Mutex::default() }
    }

    /// A copy of the log; bytes are shared.
    pub fn log(&self) -> Vec<Event> {
        self.log.lock().clone()
    }

    /// The number of events so far.
    pub fn events(&self) -> usize {
        self.log.lock().len()
    }

    /// The event indices of each epoch, oldest first; the last is the one that no flush has ended.
    pub fn flush_epochs(&self) -> Vec<Range<usize>> {
        epochs(&self.log.lock())
    }

    /// `base` plus the first `n` events, all of them kept: a crash of a device without a cache.
    pub fn replay_prefix(&self, base: &MemDevice, n: usize) -> MemDevice {
        let state = base.fork();
        self.replay_onto(&state, 0..n);
        state
    }

    /// A state that a crash before the end of `epoch` can leave: `base`, everything before the epoch, and those
    /// of its writes and discards for whose event index `choose` says yes.
    ///
    /// # Panics
    /// If there is no such epoch (see [`flush_epochs`](Self::flush_epochs)).
    pub fn replay_epoch_subset(
        &self,
        base: &MemDevice,
        epoch: usize,
        mut choose: impl FnMut(usize) -> bool,
    ) -> MemDevice {
        let log = self.log();
        let range = epochs(&log)[epoch].clone();
        let state = base.fork();
        log[..range.start].iter().for_each(|event| apply(&state, event));
        for index in range {
            if !matches!(log[index], Event::Flush { .. }) && choose(index) {
                apply(&state, &log[index]);
            }
        }
        state
    }

    /// Applies these events in order, to walk over all prefixes without starting from the base each time.
    /// Indices past the end are ignored.
    pub fn replay_onto(&self, state: &MemDevice, events: Range<usize>) {
        let log = self.log();
        let end = events.end.min(log.len());
        log.get(events.start..end).unwrap_or_default().iter().for_each(|event| apply(state, event));
    }
}

fn epochs(log: &[Event]) -> Vec<Range<usize>> {
    let mut epochs = Vec::new();
    let mut start = 0;
    for (index, event) in log.iter().enumerate() {
        if let Event::Flush { covers } = event {
            epochs.push(start..index);
            let durable = if *covers == index { index + 1 } else { *covers };
            // Of two flushes at once the later to complete may be the earlier issued.
            start = start.max(durable);
        }
    }
    epochs.push(start..log.len());
    epochs
}

fn apply(state: &MemDevice, event: &Event) {
    let result = match event {
        Event::Write { offset, bytes } => state.write_at(*offset, &[IoSlice::new(bytes)]),
        Event::Discard { offset, len } => state.discard(*offset, *len),
        Event::Flush { .. } => Ok(()),
    };
    result.expect("a recorded request fits the base it was recorded on");
}

impl Device for RecordingDevice {
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
        self.inner.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.inner.write_at(offset, bufs)?;
        let len = usize::try_from(iovec::total(bufs)?).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        Gather::new(bufs).copy_to(&mut bytes);
        self.log.lock().push(Event::Write { offset, bytes: bytes.into() });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let covers = self.events();
        self.inner.flush()?;
        self.log.lock().push(Event::Flush { covers });
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)?;
        self.log.lock().push(Event::Discard { offset, len });
        Ok(())
    }
}

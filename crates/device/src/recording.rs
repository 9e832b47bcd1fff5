//! A log of the writes that a device completed, from which tests rebuild every state that a crash
//! can leave.
//!
//! A write is logged when it *completes*. A flush is logged when it completes too, but makes
//! durable only the writes that had completed when it was *issued*. An *epoch* holds the writes
//! that a crash between two flushes may lose: the writes logged from the issue of the first flush
//! to the completion of the second. Epochs overlap if writes completed while a flush ran.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::Device;
use crate::forward_device;
use crate::iovec::{self, Gather};
use crate::mem::MemDevice;

/// A call that succeeded on a [`RecordingDevice`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A write.
    Write {
        /// Offset on the device, bytes.
        offset: u64,
        /// Bytes written.
        bytes: Arc<[u8]>,
    },
    /// A discard.
    Discard {
        /// Offset on the device, bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A flush. Events with an index below `covers` are durable once it is logged.
    Flush {
        /// Length of the log when the flush was issued, in events.
        covers: usize,
    },
}

/// A device that forwards calls to another device and logs successful writes, discards and flushes.
///
/// Failed calls leave no event, though a failed write may have changed bytes: so a
/// [`FaultDevice`](crate::FaultDevice) goes above the recorder, not below it. The recorder has no
/// native queue, so that it also logs the requests of queues.
#[derive(Debug)]
pub struct RecordingDevice {
    inner: Arc<dyn Device>,
    log: Mutex<Vec<Event>>,
}

impl RecordingDevice {
    /// Makes a device that records all later calls to `inner`. A replay also needs the contents
    /// that `inner` has now, as [`MemDevice::fork`] or [`MemDevice::copy_of`] returns them.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, log: Mutex::default() }
    }

    /// Returns a copy of the log, which shares the bytes written.
    pub fn log(&self) -> Vec<Event> {
        self.log.lock().clone()
    }

    /// Returns the number of events in the log.
    pub fn events(&self) -> usize {
        self.log.lock().len()
    }

    /// Returns the event indices of each epoch, oldest first. No flush has ended the last one.
    pub fn flush_epochs(&self) -> Vec<Range<usize>> {
        epochs(&self.log.lock())
    }

    /// Returns `base` with the first `n` events applied: the state after a crash of a device
    /// without a cache.
    pub fn replay_prefix(&self, base: &MemDevice, n: usize) -> MemDevice {
        let state = base.fork();
        self.replay_onto(&state, 0..n);
        state
    }

    /// Returns a state that a crash before the end of `epoch` can leave: `base` with all events
    /// before the epoch applied, and with the writes and discards of the epoch for whose event
    /// index `choose` returns true.
    ///
    /// # Panics
    /// If `epoch` is not an index of [`flush_epochs`](Self::flush_epochs).
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

    /// Applies a range of events to `state`, in order, so that a test can visit all prefixes
    /// without starting from the base each time. Indices past the end of the log are ignored.
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
            // Of two concurrent flushes, the one issued first may complete last.
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
    forward_device!(this => this.inner; size, sector_size, network, read_only, read_at);

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

//! Reads and writes: which page cache the data goes through, and which thread moves it.
//!
//! | request | bypasses the volume's page cache | goes through it |
//! |---|---|---|
//! | read(2) and write(2) of a file opened with `O_DIRECT` | all | |
//! | read(2) and write(2) of another file that bypasses the kernel's page cache | | all |
//! | a read that fills pages of the kernel | if the volume has no page of the range, because the kernel caches the data | otherwise |
//! | write(2) through pages of the kernel | | all |
//! | write-back of pages of the kernel | from 128 KiB on | below 128 KiB, because the volume merges many requests into one of the device; and write-back that finds no space as a whole |
//!
//! The volume keeps both paths coherent. A direct write makes the kernel [drop its
//! pages](crate::kernel_cache) of the range before it is answered.
//!
//! The thread that has read the request executes it if that leaves a thread to read requests.
//! Otherwise a request that bypasses the volume's page cache goes to a [queue
//! thread](crate::threads::QueueThreads), which waits for many at once, and any other request goes
//! to a worker. Once [`MANY_QUEUED`] requests are in queue threads, all small requests that bypass
//! the cache go to queue threads, too: other threads wake up for each request, but a queue thread
//! wakes up once for all requests that have completed.

mod read;
mod write;

use parext4::DirectFile;
use parext4::device::AlignedBuf;

use super::Dispatcher;
use crate::in_flight::{InFlightRequest, Stage};
use crate::threads::{Executing, Latency, Reservation, SharedBuf};

pub(super) use read::Read;
pub(super) use write::Write;

/// Requests of up to this many bytes are copied in less time than it takes to wake a thread.
const SMALL: usize = 32 << 10;

/// With at least this many requests in queue threads, these threads are mostly awake. With fewer,
/// handing a request to one costs more than it saves.
const MANY_QUEUED: usize = 16;

/// The origin of a request to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A read(2) or write(2) that bypasses the kernel's page cache.
    Direct,
    /// The kernel fills pages, which are locked until the reply, or passes on a write(2) that it
    /// also copies to its pages.
    Pages,
    /// The kernel writes pages back.
    WriteBack,
}

impl Dispatcher {
    /// Permits the calling thread to execute a read or write of `len` bytes. Returns `None` if
    /// another thread should execute it. `fits_queue` returns whether a queue thread can.
    fn try_execute_io(
        &self,
        latency: Latency,
        len: usize,
        fits_queue: impl Fn() -> bool,
    ) -> Option<Executing<'_>> {
        let prefers_queue = len <= SMALL && self.queue_threads.in_flight() >= MANY_QUEUED;
        if prefers_queue && fits_queue() { None } else { self.request_threads.try_execute(latency) }
    }

    /// Returns a buffer for a request of `len` bytes that a queue thread executes, and reserves its
    /// memory. The buffer uses memory only once it is filled.
    fn queue_buffer(&self, len: usize, in_flight: &InFlightRequest) -> (AlignedBuf, Reservation) {
        let buf = self.deferred.buffers.acquire(len);
        let reserved = self.reserve_memory(in_flight, buf.len());
        in_flight.enter(Stage::InQueueThread);
        (buf, reserved)
    }

    /// Returns a buffer for a request of `len` bytes that a worker executes, and reserves its
    /// memory.
    fn worker_buffer(&self, len: usize, in_flight: &InFlightRequest) -> SharedBuf {
        SharedBuf::new(&self.deferred.buffers, len, |buf| Some(self.reserve_memory(in_flight, buf.len())))
    }
}

/// Returns the latency to expect of a read or write of `len` bytes.
fn latency(waits_for_device: bool, len: usize) -> Latency {
    if waits_for_device || len > SMALL { Latency::Long } else { Latency::Short }
}

/// Converts a length within one request, which fits in memory.
fn to_usize(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

fn is_aligned(file: &DirectFile, bytes: u64) -> bool {
    bytes.is_multiple_of(file.sector_size().into())
}

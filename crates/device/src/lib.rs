//! The storage under an ext4 volume, as blocking calls and as queues of requests.
//!
//! The crate knows nothing of file systems, except how to [recognise](signature) them. Two traits
//! separate devices from their callers:
//! - [`Device`]: positioned vectored reads and writes, flush, discard. All calls take `&self`,
//!   block, and may come from any number of threads at the same time.
//! - [`Queue`]: many requests in flight for one thread, with results harvested later.
//!   [`open_queue`] opens the native queue of a device, or serves it with threads.
//!
//! A device of another crate implements [`Device`], and [`Device::native_queue`] if it is
//! asynchronous. The docs of the two traits state everything that callers rely on.
//! [`forward_device`] forwards the methods that a wrapper does not change.
//!
//! | type | storage |
//! |---|---|
//! | [`FileDevice`] | image file or block device, with direct I/O if possible, locked against other openers |
//! | [`MemDevice`] | sparse memory |
//! | `SimDevice` | another device, with a given latency and parallelism |
//! | `RecordingDevice` | another device, with a log from which tests rebuild every crash state |
//! | `FaultDevice` | another device, some of whose calls fail |
//!
//! The last three are for tests, and need the feature `testing`.
//!
//! [`Sharing`] says what keeps other machines from writing to a device. [`AlignedBuf`] and
//! [`BufferPool`] supply memory that direct I/O uses without a copy. [`shared`] copies memory that
//! several threads access at the same time.
//!
//! All offsets and lengths are in bytes.
//!
//! ```
//! use parext4_device::{AlignedBuf, Device, MemDevice};
//! use std::io::{IoSlice, IoSliceMut};
//!
//! let device = MemDevice::new(1 << 20);
//! let data = AlignedBuf::from_slice(&[7; 4096]);
//! device.write_at(8192, &[IoSlice::new(&data)])?;
//! device.flush()?;
//!
//! let mut back = AlignedBuf::zeroed(4096);
//! device.read_at(8192, &mut [IoSliceMut::new(&mut back)])?;
//! assert_eq!(back[..], data[..]);
//! # std::io::Result::Ok(())
//! ```
//!
//! # Assumptions about the medium
//! A crash leaves each sector as a whole old or new. It may lose any set of writes that no
//! completed flush covers. A flush covers the writes that completed before it was issued.

// Unsafe code is allowed in uring/ring.rs and shared.rs only.
#![deny(unsafe_code)]

mod aligned;
mod alignment;
mod batch;
pub mod check;
mod counter;
mod device;
#[cfg(any(test, feature = "testing"))]
mod fault;
mod file;
mod forward;
mod inline_queue;
mod iovec;
mod lock_handover;
mod lock_owner;
mod mem;
mod open_queue;
mod options;
mod perform;
mod pool;
mod queue;
#[cfg(any(test, feature = "testing"))]
mod recording;
mod request;
pub mod shared;
mod sharing;
mod short_transfer;
pub mod signature;
#[cfg(any(test, feature = "testing"))]
mod sim;
mod thread_queue;
mod uring;
mod write_guard;

pub use aligned::{AlignedBuf, zeros};
pub use batch::{Batch, JoinLimits};
pub use counter::Counter;
pub use device::Device;
#[cfg(any(test, feature = "testing"))]
pub use fault::{CallInfo, CallKind, FaultDevice, FaultKind, FaultPlan};
pub use file::{FileDevice, open_file_queue};
pub use inline_queue::InlineQueue;
pub use lock_handover::LockHandover;
pub use lock_owner::LockOwner;
pub use mem::MemDevice;
pub use open_queue::open_queue;
pub use options::{DeviceOptions, Direct};
pub use pool::{BufferPool, PooledBuf};
pub use queue::{Queue, QueueWaker};
#[cfg(any(test, feature = "testing"))]
pub use recording::{Event, RecordingDevice};
pub use request::{Done, Op, Request, Segment};
pub use sharing::Sharing;
#[cfg(any(test, feature = "testing"))]
pub use sim::{SimDevice, SimProfile};
pub use write_guard::{ReadNow, WriteGuard};

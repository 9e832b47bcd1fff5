//! Where the bytes of an ext4 volume live.
//!
//! Everything above this crate sees one trait, [`Device`]: positioned vectored reads and writes, flush,
//! discard. All calls take `&self` and may come from any number of threads at once.
//!
//! | type | for |
//! |---|---|
//! | [`FileDevice`] | an image file or a block device, with `O_DIRECT` where it can, locked against other users |
//! | [`MemDevice`] | a sparse volume in memory |
//! | [`SimDevice`] | another device with a given latency and queue depth |
//! | [`RecordingDevice`] | another device, with a log from which any crash state is rebuilt |
//! | [`FaultDevice`] | another device whose n-th call fails |
//!
//! [`open_queue`] gives a [`Queue`] to a device: requests are handed in and their results collected later, so
//! that one thread keeps a device busy.
//!
//! [`AlignedBuf`] and [`BufferPool`] supply memory that direct I/O takes without a copy.
//!
//! ```
//! use parext4_device::{AlignedBuf, Device, FaultDevice, FaultPlan, MemDevice};
//! use std::io::{IoSlice, IoSliceMut};
//! use std::sync::Arc;
//!
//! let device = FaultDevice::new(Arc::new(MemDevice::new(1 << 20)), FaultPlan::default());
//! let data = AlignedBuf::from_slice(&[7; 4096]);
//! device.write_at(8192, &[IoSlice::new(&data)])?;
//! device.flush()?;
//!
//! let mut back = AlignedBuf::zeroed(4096);
//! device.read_at(8192, &mut [IoSliceMut::new(&mut back)])?;
//! assert_eq!(back[..], data[..]);
//!
//! device.arm(FaultPlan::at(1));
//! assert!(device.flush().is_err());
//! # std::io::Result::Ok(())
//! ```
//!
//! Memory that several threads use at once is copied by [`shared`].
//!
//! # Assumptions about the medium
//! A sector is written whole or not at all. A write may be lost, alone or with any others, until a flush that
//! was *issued after the write completed* has completed.

// Allowed in uring/ring.rs and shared.rs only.
#![deny(unsafe_code)]

mod aligned;
mod alignment;
pub mod check;
mod device;
mod fault;
mod file;
mod inline_queue;
mod iovec;
mod location;
mod mem;
mod open_device;
mod open_queue;
mod options;
mod perform;
mod pool;
mod queue;
mod recording;
mod request;
pub mod shared;
mod short_transfer;
pub mod signature;
mod sim;
mod thread_queue;
mod uring;

pub use aligned::{AlignedBuf, zeros};
pub use device::Device;
pub use fault::{CallInfo, CallKind, FaultDevice, FaultKind, FaultPlan};
pub use file::{FileDevice, open_file_queue};
pub use inline_queue::InlineQueue;
pub use location::{Location, scheme};
pub use mem::MemDevice;
pub use open_device::{open_device, open_device_with_sectors};
pub use open_queue::open_queue;
pub use options::{DeviceOptions, Direct};
pub use pool::{BufferPool, PooledBuf};
pub use queue::{Queue, QueueWaker};
pub use recording::{Event, RecordingDevice};
pub use request::{Done, Op, Request, Segment};
pub use sim::{SimDevice, SimProfile};

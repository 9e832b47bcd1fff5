//! Devices in files: image files, block devices, and plain files for a queue.
//!
//! `open` opens, locks and measures the file; `direct` finds out whether and how direct I/O works;
//! `transfer` makes the system calls; `device` uses all three.

mod device;
mod direct;
mod open;
mod plain_queue;
mod transfer;

pub use device::FileDevice;
pub use plain_queue::open_file_queue;

//! Queues on plain files, which are not volumes and may grow.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::device::FileDevice;
use crate::device::Device;
use crate::open_queue::open_queue;
use crate::queue::Queue;

/// Opens a queue on a plain file of any file system. A write past the end of the file extends it.
///
/// `direct` switches the open file to direct I/O, for every descriptor that shares the open file
/// description. Offsets and lengths are then multiples of the file's sectors; without `direct` they
/// may be any number of bytes.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if `direct` is true and the file has no direct I/O.
pub fn open_file_queue(file: File, depth: u32, direct: bool) -> io::Result<Box<dyn Queue>> {
    let device: Arc<dyn Device> = Arc::new(FileDevice::growing(file, direct)?);
    Ok(open_queue(&device, depth))
}

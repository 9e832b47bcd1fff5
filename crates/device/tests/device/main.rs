//! Tests of all devices through their public interface.

mod block_device;
mod fault;
mod file;
mod file_options;
mod mem;
mod queue;
mod recording;
mod sim;
mod wrappers;

use device_testkit::contract::{pattern, refuses_bad_requests, threads_do_not_disturb_each_other};
use parext4_device::{AlignedBuf, Device};
use std::io::{self, IoSlice, IoSliceMut};

fn write(device: &dyn Device, offset: u64, bytes: &[u8]) -> io::Result<()> {
    device.write_at(offset, &[IoSlice::new(bytes)])
}

fn read(device: &dyn Device, offset: u64, len: usize) -> io::Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len);
    device.read_at(offset, &mut [IoSliceMut::new(&mut buf)])?;
    Ok(buf)
}

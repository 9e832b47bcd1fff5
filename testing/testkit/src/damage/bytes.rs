//! Reads and writes bytes at any place of a device, which transfers whole sectors.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

use parext4::{Device, MemDevice};

use crate::sector::SECTOR;

/// Reads `len` bytes.
///
/// # Panics
/// If they are not on the device; so for [`write`].
pub fn read(device: &MemDevice, at: u64, len: usize) -> Vec<u8> {
    let (_, bytes, place) = sectors(device, at, len);
    bytes[place].to_vec()
}

/// Writes bytes.
pub fn write(device: &MemDevice, at: u64, new: &[u8]) {
    let (start, mut bytes, place) = sectors(device, at, new.len());
    bytes[place].copy_from_slice(new);
    device.write_at(start, &[IoSlice::new(&bytes)]).expect("a place in the volume");
}

/// Reads the whole sectors around `len` bytes, and returns their offset, their contents, and the
/// place of the bytes in them.
fn sectors(device: &MemDevice, at: u64, len: usize) -> (u64, Vec<u8>, Range<usize>) {
    let start = at - at % SECTOR as u64;
    let within = usize::try_from(at - start).expect("less than a sector");
    let mut bytes = vec![0; (within + len).next_multiple_of(SECTOR)];
    device.read_at(start, &mut [IoSliceMut::new(&mut bytes)]).expect("a place in the volume");
    (start, bytes, within..within + len)
}

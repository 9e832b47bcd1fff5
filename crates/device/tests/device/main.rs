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

/// Returns bytes that differ between offsets and between seeds.
fn pattern(seed: u8, len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    for (index, byte) in buf.iter_mut().enumerate() {
        *byte = (index % 251) as u8 ^ (index >> 9) as u8 ^ seed;
    }
    buf
}

/// Checks that a device refuses requests that are not aligned or not inside it, and accepts empty ones.
fn refuses_bad_requests(device: &dyn Device) {
    let sector = device.sector_size() as usize;
    let kind = |result: io::Result<_>| result.map(|_| ()).unwrap_err().kind();
    for (offset, len) in [(1, sector), (0, sector / 2), (sector as u64 / 2, sector)] {
        let mut buf = vec![0; len];
        let read = device.read_at(offset, &mut [IoSliceMut::new(&mut buf)]);
        assert_eq!(kind(read), io::ErrorKind::InvalidInput);
        assert_eq!(kind(write(device, offset, &buf)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(device.discard(offset, len as u64)), io::ErrorKind::InvalidInput);
    }
    for offset in [device.size(), u64::MAX - (sector as u64 - 1)] {
        let error = read(device, offset, sector).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains(&format!("offset {offset} len {sector}")), "{error}");
        assert_eq!(kind(write(device, offset, &vec![0; sector])), io::ErrorKind::InvalidInput);
        assert_eq!(kind(device.discard(offset, sector as u64)), io::ErrorKind::InvalidInput);
    }
    device.read_at(device.size(), &mut []).unwrap();
    device.write_at(0, &[]).unwrap();
    device.discard(0, 0).unwrap();
}

/// Checks that threads read back what they wrote to regions of their own, many times.
fn threads_do_not_disturb_each_other(device: &dyn Device) {
    const REGION: usize = 12 << 10;
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..40u8 {
                    let offset = (usize::from(thread) * REGION) as u64;
                    let bytes = pattern(thread << 6 | round, REGION);
                    write(device, offset, &bytes).unwrap();
                    assert_eq!(read(device, offset, REGION).unwrap()[..], bytes[..]);
                }
            });
        }
    });
}

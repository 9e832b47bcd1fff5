//! Tests of `FileDevice`, through the page cache and with direct I/O.

use super::{pattern, read, refuses_bad_requests, threads_do_not_disturb_each_other, write};
use parext4_device::{Device, DeviceOptions, Direct, FileDevice};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use tempfile::TempDir;

const SIZE: u64 = 4 << 20;

/// Runs `test` on a new image through the page cache, and directly where the temporary directory
/// allows it.
fn on_both_paths(test: impl Fn(&FileDevice)) {
    for direct in [Direct::Never, Direct::Always] {
        let dir = TempDir::new().unwrap();
        match FileDevice::open(dir.path().join("image"), &DeviceOptions::new().create(SIZE).direct(direct)) {
            Ok(device) => {
                assert_eq!(device.is_direct(), direct == Direct::Always);
                assert_eq!(device.size(), SIZE);
                test(&device);
            }
            Err(error) => device_testkit::skip_allowed(&format!("with {direct:?}: {error}")),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    on_both_paths(|device| {
        let bytes = pattern(1, 256 << 10);
        write(device, 64 << 10, &bytes).unwrap();
        device.flush().unwrap();
        assert_eq!(read(device, 64 << 10, 256 << 10).unwrap()[..], bytes[..]);
        assert!(read(device, 0, 64 << 10).unwrap().iter().all(|&byte| byte == 0));
    });
}

#[test]
fn memory_needs_no_alignment() {
    on_both_paths(|device| {
        // Longer than one bounce buffer, and split inside a sector.
        let len = (1 << 20) + 12288;
        let source = pattern(2, len + 4096);
        let bytes = &source[1..=len];
        let (a, b) = bytes.split_at(777);
        device.write_at(4096, &[IoSlice::new(a), IoSlice::new(b)]).unwrap();
        let mut back = vec![0; len + 1];
        let (x, y) = back[1..].split_at_mut(100_001);
        device.read_at(4096, &mut [IoSliceMut::new(x), IoSliceMut::new(y)]).unwrap();
        assert!(back[1..] == *bytes);
        let aligned = read(device, 4096, len).unwrap();
        assert!(aligned[..] == *bytes);
    });
}

#[test]
fn a_request_may_have_any_number_of_buffers() {
    on_both_paths(|device| {
        let sector = device.sector_size() as usize;
        let count = (3000 * 512) / sector;
        let bytes = pattern(3, count * sector);
        let slices: Vec<_> = bytes.chunks(sector).map(IoSlice::new).collect();
        device.write_at(0, &slices).unwrap();
        let mut back = parext4_device::AlignedBuf::zeroed(bytes.len());
        let mut slices: Vec<_> = back.chunks_mut(sector).map(IoSliceMut::new).collect();
        device.read_at(0, &mut slices).unwrap();
        assert!(back[..] == bytes[..]);
    });
}

#[test]
fn empty_buffers_count_for_nothing() {
    on_both_paths(|device| {
        let bytes = pattern(4, 8192);
        let (a, b) = bytes.split_at(4096);
        device.write_at(0, &[&[], a, &[], b, &[]].map(IoSlice::new)).unwrap();
        device.write_at(0, &[IoSlice::new(&[])]).unwrap();
        let mut back = parext4_device::AlignedBuf::zeroed(8192);
        device.read_at(0, &mut [IoSliceMut::new(&mut []), IoSliceMut::new(&mut back)]).unwrap();
        assert_eq!(back[..], bytes[..]);
    });
}

#[test]
fn requests_are_checked() {
    on_both_paths(|device| refuses_bad_requests(device));
}

#[test]
fn threads() {
    on_both_paths(|device| threads_do_not_disturb_each_other(device));
}

#[test]
fn discard_gives_the_space_back() {
    on_both_paths(|device| {
        let blocks = || std::fs::metadata(device.path()).unwrap().blocks();
        write(device, 0, &pattern(5, 1 << 20)).unwrap();
        device.flush().unwrap();
        let before = blocks();
        device.discard(0, 1 << 20).unwrap();
        if blocks() == before {
            device_testkit::skip_allowed("no holes on this file system");
            return;
        }
        assert!(read(device, 0, 1 << 20).unwrap().iter().all(|&byte| byte == 0));
    });
}

#[test]
fn allocate_reserves_the_space() {
    on_both_paths(|device| {
        write(device, 4096, &[6; 4096]).unwrap();
        if let Err(error) = device.allocate() {
            device_testkit::skip_allowed(&format!("this file system allocates no space: {error}"));
            return;
        }
        assert!(std::fs::metadata(device.path()).unwrap().blocks() * 512 >= SIZE);
        assert_eq!(read(device, 4096, 512).unwrap()[0], 6);
        assert_eq!(device.size(), SIZE);
    });
}

#[test]
fn a_file_truncated_by_another_program_is_an_error() {
    on_both_paths(|device| {
        std::fs::OpenOptions::new().write(true).open(device.path()).unwrap().set_len(8192).unwrap();
        let error = read(device, 4096, 8192).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    });
}

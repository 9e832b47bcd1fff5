//! Tests of `MemDevice`.

use super::{pattern, read, refuses_bad_requests, threads_do_not_disturb_each_other, write};
use parext4_device::{Device, MemDevice};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

#[test]
fn holes_are_zeros_and_cost_nothing() {
    let device = MemDevice::new(16 << 40);
    assert!(read(&device, (16 << 40) - 4096, 4096).unwrap().iter().all(|&byte| byte == 0));
    assert_eq!(device.allocated_bytes(), 0);
    write(&device, 5 << 40, &[1; 512]).unwrap();
    assert_eq!(device.allocated_bytes(), 64 << 10);
    assert_eq!(read(&device, 5 << 40, 1024).unwrap()[511..513], [1, 0]);
}

#[test]
fn a_request_may_span_chunks_and_buffers() {
    let device = MemDevice::new(1 << 20);
    let bytes = pattern(1, 200 << 10);
    let (a, rest) = bytes.split_at(100);
    let (b, c) = rest.split_at(70_001);
    device.write_at(60 << 10, &[a, &[], b, c].map(IoSlice::new)).unwrap();
    let (mut x, mut y) = (vec![0; 150_000], vec![0; (200 << 10) - 150_000]);
    device.read_at(60 << 10, &mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)]).unwrap();
    assert_eq!([x, y].concat(), bytes[..]);
}

#[test]
fn bytes_in_and_out() {
    let bytes = [vec![0; 70_000], pattern(2, 130 << 10).to_vec()].concat();
    let bytes = bytes[..bytes.len() / 512 * 512].to_vec();
    let device = MemDevice::from_bytes(bytes.clone());
    assert_eq!(device.snapshot(), bytes);
    assert_eq!(MemDevice::copy_of(&device).unwrap().snapshot(), bytes);
    assert_eq!(MemDevice::from_bytes(vec![9; 1000]).size(), 512);
}

#[test]
fn saved_files_have_holes() {
    let device = MemDevice::new(64 << 20);
    write(&device, 33 << 20, &[5; 4096]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    device.save(&path).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 64 << 20);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} sectors on disk", metadata.blocks());
    assert_eq!(std::fs::read(&path).unwrap(), device.snapshot());
}

#[test]
fn forks_part_on_write() {
    let first = MemDevice::new(1 << 20);
    write(&first, 0, &[1; 4096]).unwrap();
    let second = first.fork();
    write(&second, 512, &[2; 512]).unwrap();
    write(&first, 1024, &[3; 512]).unwrap();
    let at = |device: &MemDevice, offset| read(device, offset, 512).unwrap()[0];
    assert_eq!([at(&first, 0), at(&first, 512), at(&first, 1024)], [1, 1, 3]);
    assert_eq!([at(&second, 0), at(&second, 512), at(&second, 1024)], [1, 2, 1]);
}

#[test]
fn discarded_bytes_are_zeros() {
    let device = MemDevice::new(1 << 20);
    write(&device, 0, &pattern(3, 256 << 10)).unwrap();
    device.discard(512, 150 << 10).unwrap();
    let after = read(&device, 0, 256 << 10).unwrap();
    let expected = pattern(3, 256 << 10);
    assert_eq!(after[..512], expected[..512]);
    assert!(after[512..512 + (150 << 10)].iter().all(|&byte| byte == 0));
    assert_eq!(after[512 + (150 << 10)..], expected[512 + (150 << 10)..]);
    assert_eq!(device.allocated_bytes(), 192 << 10);
}

#[test]
fn sectors_are_written_whole() {
    let device = MemDevice::new(1 << 20);
    std::thread::scope(|scope| {
        for byte in [0x55, 0xaa] {
            let device = &device;
            scope.spawn(move || (0..300).for_each(|_| write(device, 65024, &[byte; 4096]).unwrap()));
        }
        for _ in 0..300 {
            let bytes = read(&device, 65024, 4096).unwrap();
            for sector in bytes.chunks(512) {
                assert!(sector.iter().all(|byte| byte == &sector[0]), "a torn sector");
            }
        }
    });
}

#[test]
fn requests_are_checked() {
    refuses_bad_requests(&MemDevice::new(1 << 20));
    refuses_bad_requests(&MemDevice::new(1 << 20).with_sector_size(4096));
    refuses_bad_requests(&(Arc::new(MemDevice::new(1 << 20)) as Arc<dyn Device>));
}

#[test]
fn threads() {
    threads_do_not_disturb_each_other(&MemDevice::new(1 << 20));
}

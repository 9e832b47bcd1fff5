//! Making volumes on devices that fail, that are too small, or whose sectors are large.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4::mkfs::{MkfsOptions, mkfs};
use parext4_device::{Device, FaultDevice, FaultPlan, MemDevice};
use parext4_format::superblock::Superblock;
use testkit::device::{HookedDevice, Hooks};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[test]
fn a_failed_write_leaves_no_volume() {
    let size = 8 * MIB;
    let old = MemDevice::new(size);
    mkfs(&old, &MkfsOptions::new()).unwrap();
    let device = FaultDevice::new(Arc::new(MemDevice::new(size)), FaultPlan::default());
    mkfs(&device, &MkfsOptions::new()).unwrap();
    let calls = device.calls();
    // The last two calls are the superblock's write and the flush after it.
    for nth in (1..=calls - 2).step_by(7).chain([calls - 2]) {
        let inner = Arc::new(MemDevice::from_bytes(old.snapshot()));
        let device = FaultDevice::new(inner.clone(), FaultPlan::at(nth));
        let error = mkfs(&device, &MkfsOptions::new()).unwrap_err();
        assert!(!error.to_string().is_empty());
        let mut start = vec![0; 4096];
        inner.read_at(0, &mut [IoSliceMut::new(&mut start)]).unwrap();
        let is_volume = Superblock::parse(&start[1024..2048]).is_ok();
        // Before the wipe, the old volume is whole.
        assert!(nth == 1 || !is_volume, "call {nth} of {calls}");
    }
}

/// Sectors of 4 KiB, to which all requests must be aligned.
#[derive(Debug)]
struct LargeSectors;

impl Hooks for LargeSectors {
    fn sector_size(&self, _: &dyn Device) -> u32 {
        4096
    }

    fn read_at(&self, inner: &dyn Device, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        assert_aligned(offset, bufs.iter().map(|buf| buf.len()).sum());
        inner.read_at(offset, bufs)
    }

    fn write_at(&self, inner: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        assert_aligned(offset, bufs.iter().map(|buf| buf.len()).sum());
        inner.write_at(offset, bufs)
    }
}

fn assert_aligned(offset: u64, len: usize) {
    assert!(offset.is_multiple_of(4096) && len.is_multiple_of(4096), "{len} bytes at {offset}");
}

#[test]
fn sectors_larger_than_blocks() {
    for device_is_zero in [false, true] {
        let options =
            MkfsOptions::new().uuid([1; 16]).hash_seed([2; 16]).now(3).device_is_zero(device_is_zero);
        let small = MemDevice::new(8 * MIB);
        let large = HookedDevice::new(MemDevice::new(8 * MIB), LargeSectors);
        let summary = mkfs(&small, &options).unwrap();
        assert_eq!(mkfs(&large, &options).unwrap(), summary);
        assert_eq!(summary.block_size, 1024);
        assert!(small.snapshot() == large.inner().snapshot());
    }
}

#[test]
fn devices_that_cannot_hold_a_volume_are_refused_untouched() {
    for size in [0, 512, 4 * KIB, 16 * KIB, 28 * KIB] {
        let device = MemDevice::from_bytes(vec![0xee; usize::try_from(size).unwrap()]);
        let error = mkfs(&device, &MkfsOptions::new()).unwrap_err();
        assert!(error.to_string().contains("too small"), "{size}: {error}");
        assert!(device.snapshot().iter().all(|&byte| byte == 0xee));
    }
}

#[test]
fn more_blocks_than_32_bits_count() {
    let size = 20 << 40;
    let device = MemDevice::new(size);
    let summary = mkfs(&device, &MkfsOptions::new().device_is_zero(true)).unwrap();
    let inodes = u32::try_from(size / 65536).unwrap();
    assert_eq!((summary.blocks_count, summary.inodes_count), (size / 4096, inodes));
    // The resize inode's pointers have 32 bits.
    assert!(!summary.features.iter().any(|name| name == "resize_inode"));
    let mut start = vec![0; 4096];
    device.read_at(0, &mut [IoSliceMut::new(&mut start)]).unwrap();
    let sb = Superblock::parse(&start[1024..2048]).unwrap();
    assert_eq!((sb.blocks_count(), sb.free_blocks()), (summary.blocks_count, summary.free_blocks));
}

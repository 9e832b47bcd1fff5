//! Volumes whose intervals are counted in short seconds.

use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use parext4::mmp::{self, MmpOptions, MmpState};
use parext4::{Device, MemDevice, MkfsOptions, mkfs};
use parext4_format::mmp::{Mmp, name_field};
use parext4_format::superblock::Superblock;

/// Length of a second.
pub const SECOND: Duration = Duration::from_millis(20);
/// Seconds for which a block with an update interval of one second must not change: twice five, and one.
pub const WAIT: u32 = 11;

/// Returns options with short seconds.
pub fn short() -> MmpOptions {
    MmpOptions::new().second(SECOND)
}

/// Returns an empty volume with an update interval of one second.
pub fn volume() -> MemDevice {
    let device = MemDevice::new(16 << 20);
    mkfs(&device, &MkfsOptions::new().block_size(1024).mmp(true).mmp_update_interval(1)).unwrap();
    device
}

/// Reads the block.
pub fn state(device: &dyn Device) -> MmpState {
    mmp::read(device).unwrap().expect("the feature mmp")
}

/// Writes the block in the name of another machine.
pub fn write_as_other(device: &dyn Device, sequence: u32) {
    let mut start = [0; 4096];
    device.read_at(0, &mut [IoSliceMut::new(&mut start)]).unwrap();
    let superblock = Superblock::parse(&start[1024..]).unwrap();
    let number = superblock.mmp_block().unwrap().unwrap();
    let mut block = vec![0; superblock.block_size() as usize];
    let (node, device_name) = (name_field(b"other-node"), name_field(b"sdz"));
    let mmp = Mmp { sequence, time: 951_782_400, node, device: device_name, check_interval: 5 };
    mmp.encode(&mut block, superblock.checksum_seed());
    device.write_at(number.get() * u64::from(superblock.block_size()), &[IoSlice::new(&block)]).unwrap();
}

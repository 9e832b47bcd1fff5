//! Volumes whose intervals are counted in short seconds.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use parext4::mmp::{self, MmpOptions, MmpState};
use parext4::{Device, MemDevice, MkfsOptions, mkfs};
use parext4_device::{Sharing, forward_device};
use parext4_format::mmp::{Mmp, name_field};
use parext4_format::superblock::Superblock;

/// Length of a second.
pub const SECOND: Duration = Duration::from_millis(100);
/// Seconds for which a block with an update interval of one second must not change: twice five, and
/// one.
pub const WAIT: u32 = 11;

/// Returns options with short seconds.
pub fn short() -> MmpOptions {
    MmpOptions::new().second(SECOND)
}

/// Returns an empty volume with an update interval of one second.
pub fn volume() -> MemDevice {
    volume_with_interval(1)
}

/// Returns an empty volume with an update interval in seconds.
pub fn volume_with_interval(interval: u16) -> MemDevice {
    let device = MemDevice::new(16 << 20);
    let options = MkfsOptions::new().block_size(1024).mmp(true).mmp_update_interval(interval);
    mkfs(&device, &options).unwrap();
    device
}

/// Reads the block.
pub fn state(device: &dyn Device) -> MmpState {
    mmp::read(device).unwrap().expect("the feature mmp")
}

/// Writes the block in the name of another machine.
pub fn write_as_other(device: &dyn Device, sequence: u32) {
    write_block(device, sequence, 5);
}

/// Writes the block in the name of another machine with this check interval, in seconds.
pub fn write_block(device: &dyn Device, sequence: u32, check_interval: u16) {
    let (offset, len) = place(device);
    let mut block = vec![0; len];
    let (node, device_name) = (name_field(b"other-node"), name_field(b"sdz"));
    let mmp = Mmp { sequence, time: 951_782_400, node, device: device_name, check_interval };
    mmp.encode(&mut block, superblock(device).checksum_seed());
    device.write_at(offset, &[IoSlice::new(&block)]).unwrap();
}

fn superblock(device: &dyn Device) -> Superblock {
    let mut start = [0; 4096];
    device.read_at(0, &mut [IoSliceMut::new(&mut start)]).unwrap();
    Superblock::parse(&start[1024..]).unwrap()
}

/// Returns the offset of the block and its length, in bytes.
pub fn place(device: &dyn Device) -> (u64, usize) {
    let superblock = superblock(device);
    let number = superblock.mmp_block().unwrap().unwrap();
    (number.get() * u64::from(superblock.block_size()), superblock.block_size() as usize)
}

/// Overwrites the block with zeros.
pub fn overwrite(device: &dyn Device) {
    let (offset, len) = place(device);
    device.write_at(offset, &[IoSlice::new(&vec![0; len])]).unwrap();
}

/// A device whose open has fenced the owner.
#[derive(Debug)]
pub struct Fencing(pub Arc<dyn Device>);

impl Device for Fencing {
    forward_device!(this => this.0; size, sector_size, read_only, read_at, write_at, flush, discard);

    fn sharing(&self) -> Sharing {
        Sharing::Fenced
    }

    fn has_fenced(&self) -> bool {
        true
    }
}

/// A device that other machines can reach.
#[derive(Debug)]
pub struct Shared(pub Arc<dyn Device>, pub Sharing);

impl Device for Shared {
    forward_device!(this => this.0; size, sector_size, read_only, read_at, write_at, flush, discard);

    fn sharing(&self) -> Sharing {
        self.1
    }
}

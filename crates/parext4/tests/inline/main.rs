//! Volumes that store small contents in inodes (inline_data): against models, the kernel, e2fsck,
//! crashes and hostile bytes.

mod alternate;
mod concurrent;
mod crash;
mod file;
mod hostile;
mod names;
mod queued;
mod tree;

use std::sync::Arc;

use parext4::{Device, MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};
use testkit::Image;
use testkit::volume::untimed;

/// A kind of volumes: the size of an inode in bytes, and options for mke2fs.
type Kind = (u64, &'static [&'static str]);

/// Kinds that differ in the space of an inode and in checksums.
const KINDS: &[Kind] = &[
    (256, &["-b", "4096", "-I", "256", "-O", "inline_data"]),
    (1024, &["-b", "1024", "-I", "1024", "-O", "inline_data"]),
    (4096, &["-b", "4096", "-I", "4096", "-O", "inline_data,^metadata_csum", "-N", "1024"]),
    (256, &["-b", "2048", "-I", "256", "-O", "inline_data,^has_journal,^dir_index"]),
    (256, &["-b", "1024", "-I", "256", "-O", "inline_data,^extent,^64bit"]),
];

/// Returns the number of bytes that a new inode of this size has room for.
const fn room(inode_size: u64) -> u64 {
    // The fields end at byte 160, and the attribute takes 28 bytes beside its value. `i_block` has
    // 60 bytes.
    inode_size - 160 - 28 + 60
}

/// Returns true if the contents of a file lie in its inode, as debugfs shows.
fn is_inline(image: &Image, path: &str) -> bool {
    image.debugfs(&format!("stat {path}")).contains("Size of inline data")
}

/// Makes an empty volume in memory.
fn new_volume(inode_size: u16) -> MemDevice {
    let device = MemDevice::new(16 << 20);
    let options = MkfsOptions::new().block_size(4096).inode_size(inode_size).features("inline_data").unwrap();
    mkfs(&device, &options.device_is_zero(true)).unwrap();
    device
}

fn open(device: &Arc<MemDevice>) -> Volume {
    open_with(device, &untimed())
}

fn open_with(device: &Arc<MemDevice>, options: &VolumeOptions) -> Volume {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, options).unwrap()
}

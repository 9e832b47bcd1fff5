//! Opens the device of a volume that a user named: a path of this machine, or a URL of a network block device.
//!
//! [`Location`] reads the name, [`open_device`] opens the device. A name may end in `?partition=N`, for a partition of a disk.

#![forbid(unsafe_code)]

mod location;
mod open_device;
mod partition;
mod size;

pub use location::{Location, scheme};
pub use open_device::{open_device, open_device_with_sectors, partition_options};
pub use partition::{Partition, PartitionTable, partitions, split_partition};
pub use size::parse_size;

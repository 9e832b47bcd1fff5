//! Opens the volume or the device that a user named: by a path of this machine, or by the URL of a
//! network block device. A name may end in `?partition=N`, for a partition of a disk.
//!
//! [`Location`] parses the name, [`open_device`] opens any device, [`open_volume_device`] the
//! device of a volume, and [`open_volume`] the volume.
//!
//! | feature | names |
//! |---|---|
//! | none | image files and block devices of this machine, and partitions of them |
//! | `nbd` | exports of NBD servers: `nbd://`, `nbds://`, `nbd+unix://` and `nbds+unix://` |
//! | `rbd` | Ceph RBD images: `rbd:` |
//!
//! A name whose feature is not enabled is refused with
//! [`Unsupported`](std::io::ErrorKind::Unsupported).

#![forbid(unsafe_code)]

mod dead_owner;
mod location;
mod open_device;
mod open_volume;
mod partition;
mod size;

pub use location::{Location, scheme};
pub use open_device::{open_device, partition_options};
pub use open_volume::{open_volume, open_volume_device};
pub use partition::{Partition, PartitionTable, partitions, split_partition};
pub use size::parse_size;

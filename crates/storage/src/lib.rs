//! Opens the device of a volume that a user named: a path of this machine, or a URL of a network block device.
//!
//! [`Location`] reads the name, [`open_device`] opens the device.

#![forbid(unsafe_code)]

mod location;
mod open_device;

pub use location::{Location, scheme};
pub use open_device::{open_device, open_device_with_sectors};

//! A volume in an image file or on a block device.

mod device;
mod direct;
mod open;
mod plain_queue;
mod transfer;

pub use device::FileDevice;
pub use plain_queue::open_file_queue;

//! Queries of a file's map: where it has data and holes, and where its blocks lie on the device.

mod cached;
mod fiemap;
mod seek;
mod stats;

pub use fiemap::FileExtent;

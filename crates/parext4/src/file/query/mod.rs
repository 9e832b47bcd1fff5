//! Queries of a file's map: where it has data and holes, and where its blocks lie on the device.

mod fiemap;
mod seek;

pub use fiemap::FileExtent;

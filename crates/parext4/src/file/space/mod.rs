//! Changes of a file's blocks and size that carry no data: allocation, holes, ranges of zeros, collapse and insertion of
//! ranges, and the size itself.

mod allocate;
mod punch;
mod resize;
mod shift;
mod zero;

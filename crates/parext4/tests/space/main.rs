//! Blocks: volumes that run out of them, which files may allocate them and where, and how they are
//! freed.

mod clusters;
mod contiguity;
mod conversion;
mod extents;
mod full;
mod preallocation;
mod removal;
mod reserved;
mod returning;
mod trim;
mod unreadable;

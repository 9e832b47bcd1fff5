//! Changes of the block map of a file: adds, converts, removes, moves and preallocates blocks.
//!
//! Responsible for changing the block map together with the allocator, the inode's block count and
//! the journal's credits. Not responsible for data, sizes and lookups;
//! [`block_map`](crate::block_map) answers lookups.

mod blocks;
mod clusters;
mod delayed;
mod indirect;
mod inline;
mod logged;
mod preallocation;
mod shift;
mod space;
mod unmap;

pub(crate) use blocks::FillOptions;
pub(crate) use inline::MOVE_CREDITS;
pub(crate) use shift::CUT_BLOCKS;
pub use space::SpaceWait;

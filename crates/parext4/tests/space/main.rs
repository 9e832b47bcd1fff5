//! Blocks: volumes that run out of them, who gets them and where, and giving them back.

mod ahead;
mod contiguity;
mod conversion;
mod extents;
mod full;
mod reserved;
mod trim;

//! Blocks: volumes that run out of them, who gets them and where, and giving them back.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod contiguity;
mod conversion;
mod extents;
mod full;
mod reserved;
mod trim;

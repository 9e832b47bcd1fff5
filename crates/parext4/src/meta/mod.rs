//! Metadata blocks in memory: their contents, a cache of them, and their checksums.
//!
//! This module reads blocks, verifies their checksums on read, and writes the checksums at commit.
//! The parsers in `format` and the modules that own the structures interpret the blocks, and
//! `journal` writes them to the device.
//!
//! Invariants: a block is in memory at most once. Contents are copy-on-write, so a reader or a
//! commit keeps the version that it has read. Only a journal handle changes contents.

mod block;
mod cache;
mod kind;

pub(crate) use block::MetaBlock;
pub(crate) use cache::MetaCache;
pub(crate) use kind::BlockKind;

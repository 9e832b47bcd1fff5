//! Metadata blocks in memory: their contents, a cache of them, and their checksums.
//!
//! Responsible for reading blocks, for verifying their checksums on read and writing them at commit. Not responsible for
//! what the blocks mean (the parsers in `format` and the modules that own the structures), nor for writing them to the
//! device (`journal`).
//!
//! Invariants: a block is in memory at most once. Contents are copy-on-write, so a reader or a commit keeps the version
//! that it has read. Only a journal handle changes contents.

mod block;
mod cache;
mod kind;

pub(crate) use block::MetaBlock;
pub(crate) use cache::MetaCache;
pub(crate) use kind::BlockKind;

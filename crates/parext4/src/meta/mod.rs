//! Metadata blocks in memory: copy-on-write contents, a cache, checksums verified on read and sealed at commit.

mod block;
mod cache;
mod kind;

pub(crate) use block::MetaBlock;
pub(crate) use cache::MetaCache;
pub(crate) use kind::BlockKind;

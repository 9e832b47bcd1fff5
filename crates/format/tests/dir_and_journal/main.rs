//! Directories, attributes, the orphan file and the journal against e2fsprogs, and against hostile
//! bytes.

mod directory;
mod hash;
mod hostile;
mod image;
mod journal;
mod small_blocks;

//! The inodes and open files that the kernel may name in a request.

mod lookup_counts;
mod open_files;

pub(crate) use lookup_counts::LookupCounts;
pub(crate) use open_files::{Durability, OpenFile, OpenFiles, ReleasedFile};

//! Files mapped by indirect blocks, as in ext2 and ext3: against the kernel and e2fsprogs, at the
//! limits of the format, without space, and on corrupt images.

mod edges;
mod hostile;
mod kernel;
mod mapped_twice;
mod sparse;

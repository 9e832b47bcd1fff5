//! The file-system structures against volumes made by mke2fs, and against damaged and arbitrary
//! bytes.

mod hostile;
mod image;
mod inodes;
mod known_answers;

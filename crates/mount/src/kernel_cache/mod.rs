//! The kernel's page cache: whether it may hold pages of an inode, and how the server makes it drop
//! them.

mod changed_blocks;
mod invalidation;
mod pages;
mod write_back;

pub use changed_blocks::ChangedBlocks;
#[cfg(shuttle)]
pub use invalidation::WaitPermit;
pub use invalidation::{Invalidation, Kernel};
pub use pages::KernelPages;
pub(crate) use pages::{PageWriter, WriteAccess};
pub(crate) use write_back::WriteBackRequest;

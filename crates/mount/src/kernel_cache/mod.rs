//! The kernel's page cache: whether it may hold pages of an inode, and how the server has it drop them.

mod invalidation;
mod pages;
mod write_back;

pub use invalidation::Invalidation;
#[cfg(shuttle)]
pub use invalidation::{Kernel, WaitPermit};
pub use pages::KernelPages;
pub(crate) use pages::{PageWriter, WriteAccess};
pub(crate) use write_back::WriteBackRequest;

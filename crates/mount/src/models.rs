//! Re-exports the parts of the server that the model tests use.

pub use crate::kernel_cache::{Invalidation, Kernel, KernelPages, WaitPermit};
pub use crate::threads::MemoryBudget;

//! Re-exports for the model tests.

pub use crate::kernel_cache::{Invalidation, Kernel, KernelPages, WaitPermit};
pub use crate::threads::MemoryBudget;

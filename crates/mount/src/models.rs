//! What the model tests use of the server.

pub use crate::kernel_cache::{Invalidation, Kernel, KernelPages, WaitPermit};

//! What the model tests use of the server.

pub use crate::invalidation::{Invalidation, Kernel, Place};
pub use crate::kernel_pages::KernelPages;

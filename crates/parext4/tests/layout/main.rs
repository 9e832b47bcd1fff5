//! Operations that change the layout of a file: holes, zeroed, collapsed and inserted ranges, sizes
//! and allocations; against a model, against the kernel, without space, and across crashes.

mod crash;
mod edges;
mod kernel;
mod last_block;
mod random;
mod space;

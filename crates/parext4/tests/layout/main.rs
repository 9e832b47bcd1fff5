//! What changes the layout of a file: holes, ranges of zeros, ranges taken out and put in, sizes and allocations;
//! against a model, against the kernel, without space, and across crashes.

mod crash;
mod edges;
mod kernel;
mod model;
mod random;
mod space;

//! Trees of files: made from a plan, and compared with one another.

pub mod generate;
pub mod manifest;

//! The operations that random tests run, what they write, and models of their effect.
//!
//! | module | contents |
//! |---|---|
//! | [`file_op`], [`content`] | an operation on one file, and the bytes that it writes |
//! | [`file_ops`] | random operations on one file |
//! | [`file_handles`], [`kernel_file`] | a file that is open in each way, of a volume and of the kernel, on which operations run |
//! | [`file_model`], [`written_blocks`] | the expected contents of a file, and its written blocks |

pub mod content;
pub mod file_handles;
pub mod file_model;
pub mod file_op;
pub mod file_ops;
pub mod kernel_file;
pub mod written_blocks;

pub use content::Content;
pub use file_handles::FileHandles;
pub use file_model::FileModel;
pub use file_op::{FileOp, Outcome, Way};
pub use file_ops::{FileOps, Shape, Weights};
pub use kernel_file::KernelFile;

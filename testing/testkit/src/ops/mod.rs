//! The operations that random tests run, what they write, models of their effect, and what a crash
//! may leave of it.
//!
//! | module | contents |
//! |---|---|
//! | [`file_op`], [`op`] | an operation on one file; on a volume, with the calls that make it durable |
//! | [`content`] | the bytes that an operation writes |
//! | [`file_ops`] | random operations on one file |
//! | [`file_handles`], [`kernel_file`] | a file that is open in each way, of a volume and of the kernel, on which operations run |
//! | [`runner`], [`kernel_tree`] | operations of one thread on a volume, and on a tree of the kernel |
//! | [`file_model`], [`written_blocks`] | the expected contents of a file, and its written blocks |
//! | [`tree`], [`found`] | the expected names, attributes and contents of a volume; the ones that a volume has |
//! | [`crash_oracle`] | what may be found after a crash |

pub mod content;
pub mod crash_oracle;
pub mod file_handles;
pub mod file_model;
pub mod file_op;
pub mod file_ops;
pub mod found;
pub mod kernel_file;
pub mod kernel_tree;
pub mod op;
pub mod runner;
pub mod tree;
pub mod written_blocks;

pub use content::Content;
pub use crash_oracle::{Durable, Oracle, Zeros};
pub use file_handles::FileHandles;
pub use file_model::FileModel;
pub use file_op::{FileOp, Outcome, Way};
pub use file_ops::{FileOps, Shape, Weights};
pub use found::read_tree;
pub use kernel_file::KernelFile;
pub use kernel_tree::KernelTree;
pub use op::{Op, Persist, Step};
pub use runner::Runner;
pub use tree::Tree;

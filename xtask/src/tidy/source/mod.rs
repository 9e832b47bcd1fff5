//! Reading the sources: files, their tokens and comments, modules and the references between them.

mod crate_tree;
mod imports;
mod path;
mod rust;
mod tree;

pub use crate_tree::{CrateTree, Edge};
pub use imports::Use;
pub use path::Path;
pub use rust::Rust;
pub use tree::Tree;

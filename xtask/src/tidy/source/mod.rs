//! Reading the sources: files, their tokens and comments, modules and the references between them.

mod crate_tree;
mod imports;
mod method_index;
mod methods;
mod path;
mod rust;
mod tree;

pub use crate_tree::{CrateTree, Edge};
pub use imports::Use;
pub use method_index::Candidate;
pub use methods::Call;
pub use path::Path;
pub use rust::Rust;
pub use tree::Tree;

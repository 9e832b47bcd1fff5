//! Workload with names and small files, through plain system calls on any mounted file system.

mod git;
mod names;
mod source_tree;
mod tree;

pub use names::{Names, Operation};
pub use tree::{Tree, TreeTask};

use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{fsync, syncfs};

/// Makes all durable that lies on a file system, whose root is `root`. A file system in user space is not told of
/// syncfs(2), which only has the kernel give it all data; what it has it makes durable when its root is synced.
fn sync(root: &Path) -> Result<()> {
    let dir = std::fs::File::open(root).with_context(|| root.display().to_string())?;
    syncfs(&dir).context("syncfs")?;
    fsync(&dir).context("syncing the root directory")
}

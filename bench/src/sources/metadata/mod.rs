//! Workloads with names and small files, through plain system calls on any mounted file system.

mod git;
mod names;
mod source_tree;
mod tree;

pub use names::{Names, Operation};
pub use tree::{Tree, TreeTask};

use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{fsync, syncfs};

/// Makes all data of the file system with the root `root` durable. A FUSE server does not see
/// syncfs(2): the kernel only sends its dirty data. The server makes it durable when its root is
/// synced.
fn sync(root: &Path) -> Result<()> {
    let dir = std::fs::File::open(root).with_context(|| root.display().to_string())?;
    syncfs(&dir).context("syncfs")?;
    fsync(&dir).context("syncing the root directory")
}

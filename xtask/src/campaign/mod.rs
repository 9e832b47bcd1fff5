//! The campaigns: parext4 against e2fsprogs and the kernel, on real images.

pub mod churn;
pub mod dirty;
pub mod journal_diff;
pub mod kill;
pub mod mkfs;
pub mod mount;
pub mod programs;
pub mod tree;

use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

use crate::sh::{Cmd, cmd};
use crate::workspace;

/// How much a campaign runs. Both make the same assertions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// What each run of the tests can afford.
    Short,
    /// All of it.
    Long,
}

impl Scope {
    /// `short` or `long`, by the scope.
    pub fn pick<T>(self, short: T, long: T) -> T {
        match self {
            Scope::Short => short,
            Scope::Long => long,
        }
    }
}

/// What a campaign works with: the binary under test and a place for images.
pub struct Bench {
    binary: PathBuf,
    dir: TempDir,
}

impl Bench {
    /// Builds the binary and makes the place.
    pub fn new() -> Result<Bench> {
        Ok(Bench { binary: workspace::build_parext4()?, dir: workspace::scratch()? })
    }

    /// A path in the campaign's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A parext4 command with `words` as its first arguments; the slowest one is in the report.
    pub fn parext4(&self, words: &str) -> Cmd {
        cmd(&self.binary).args(words).noted()
    }
}

/// How the command line names `path`, which starts with a slash, in `image`.
pub fn inside(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

/// Removes a tree or a file that an earlier case of a campaign may have left.
pub fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

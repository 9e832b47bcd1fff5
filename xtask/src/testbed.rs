//! The binary under test and the images that the checks make with it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

use crate::command::{Cmd, cmd};
use crate::workspace;

/// The binary under test, and a folder for images that is removed on drop.
pub struct TestBed {
    binary: PathBuf,
    dir: TempDir,
}

impl TestBed {
    /// Builds the binary with all checks and makes the folder.
    pub fn new() -> Result<TestBed> {
        TestBed::with(workspace::build_programs()?.join("parext4"))
    }

    /// Builds the binary as users get it, and beside it the benchmarks, and makes the folder.
    pub fn release() -> Result<TestBed> {
        workspace::build_bench()?;
        TestBed::with(workspace::build_parext4()?)
    }

    fn with(binary: PathBuf) -> Result<TestBed> {
        Ok(TestBed { binary, dir: workspace::scratch()? })
    }

    /// Returns a program that was built with the binary.
    pub fn beside(&self, program: &str) -> PathBuf {
        self.binary.with_file_name(program)
    }

    /// Returns the path of `name` in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a parext4 command with `words` as its first arguments. Its time counts for the
    /// slowest command of the step.
    pub fn parext4(&self, words: &str) -> Cmd {
        cmd(&self.binary).args(words).noted()
    }

    /// Returns a command of the benchmarks that [`release`](Self::release) has built, which prints
    /// its result as JSON.
    pub fn bench(&self) -> Cmd {
        cmd(self.beside("parext4-bench")).arg("--json")
    }
}

/// Returns the argument that names `path`, which starts with a slash, in `image`.
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

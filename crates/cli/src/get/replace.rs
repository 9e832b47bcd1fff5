//! Replaces files outside.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Result, bail};

/// Makes `path` with `make`; a file at `path` is removed first. `make` must not follow a symbolic link at `path`.
pub fn replace<R>(path: &Path, make: impl Fn(&Path) -> io::Result<R>) -> Result<R> {
    match make(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return Ok(made?),
    }
    if path.symlink_metadata()?.is_dir() {
        bail!("is a directory, and would have to be replaced by a file");
    }
    fs::remove_file(path)?;
    Ok(make(path)?)
}

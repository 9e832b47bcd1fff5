//! A log file of bounded size: when it is full, it becomes the old one, and a new one begins.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Limit of the file, in bytes. The old one is as large.
const MAX_SIZE: u64 = 1 << 20;

/// A file to append to, in a directory that only its owner can enter.
#[derive(Debug)]
pub struct BoundedFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl BoundedFile {
    /// Opens the file, and makes it if necessary.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size + line.len() as u64 > MAX_SIZE {
            fs::rename(&self.path, self.path.with_extension("log.old"))?;
            *self = Self::open(&self.path)?;
        }
        self.size += line.len() as u64;
        self.file.write_all(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_does_not_exceed_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mnt.log");
        let line = [b'x'; 1000];
        for _ in 0..2 {
            let mut log = BoundedFile::open(&path).unwrap();
            for _ in 0..MAX_SIZE / 1000 {
                log.append(&line).unwrap();
            }
        }
        let sizes = ["mnt.log", "mnt.log.old"].map(|name| dir.path().join(name).metadata().unwrap().len());
        assert!(sizes.iter().all(|&size| (1000..=MAX_SIZE).contains(&size)), "{sizes:?}");
    }
}

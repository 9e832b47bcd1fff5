//! A log file of bounded size: when it is full, it becomes the old one, and a new one begins.
//!
//! Each process that has the file open holds a shared lock on it, so that no process removes it
//! while another one may append to it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
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
        let options = File::options().read(true).append(true).create(true).mode(0o600).to_owned();
        loop {
            let file = options.open(path)?;
            // Blocks for the time that another process needs to remove the file.
            file.lock_shared()?;
            let opened = file.metadata()?;
            if path.metadata().is_ok_and(|at_path| at_path.ino() == opened.ino()) {
                return Ok(Self { path: path.to_owned(), file, size: opened.len() });
            }
        }
    }

    /// Removes the file if `is_needless` of its contents is true, and no other process has it open.
    pub fn remove_if(self, is_needless: impl FnOnce(&str) -> bool) -> io::Result<()> {
        if self.file.try_lock().is_ok() {
            // A larger one than this is full, and has become the old one.
            let text = fs::read_to_string(&self.path)?;
            if is_needless(&text) {
                fs::remove_file(&self.path)?;
            }
        }
        Ok(())
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

    #[test]
    fn a_file_that_another_process_has_open_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mnt.log");
        let [first, second, third] = [(); 3].map(|()| BoundedFile::open(&path).unwrap());
        first.remove_if(|_| true).unwrap();
        assert!(path.exists());
        second.remove_if(|_| true).unwrap();
        assert!(path.exists());
        third.remove_if(|_| false).unwrap();
        assert!(path.exists());
        BoundedFile::open(&path).unwrap().remove_if(str::is_empty).unwrap();
        assert!(!path.exists());
    }
}

//! Iterates over directories of a volume that may be corrupt or hostile.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, bail, ensure};
use parext4::{DirItem, InodeNo, Node};

/// Iterator over the entries of a directory except "." and ".."; reads them in batches.
pub struct Entries {
    dir: Node,
    /// The cookie of the last entry of the batch.
    after: u64,
    batch: std::vec::IntoIter<DirItem>,
    ended: bool,
}

/// Iterates over the entries of `dir`.
pub fn entries(dir: &Node) -> Entries {
    Entries { dir: dir.clone(), after: 0, batch: Vec::new().into_iter(), ended: false }
}

impl Iterator for Entries {
    type Item = Result<DirItem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.batch.next() {
                Some(item) if item.name == b"." || item.name == b".." => {}
                Some(item) => return Some(check_name(&item.name).map(|()| item)),
                None if self.ended => return None,
                None => {
                    if let Err(error) = self.refill() {
                        self.ended = true;
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

impl Entries {
    /// Returns the directory.
    pub fn dir(&self) -> &Node {
        &self.dir
    }

    fn refill(&mut self) -> Result<()> {
        let batch = self.dir.read_dir(self.after)?;
        match batch.last() {
            Some(last) => self.after = last.cookie,
            None => self.ended = true,
        }
        self.batch = batch.into_iter();
        Ok(())
    }
}

/// Refuses names with a slash or a zero byte: a name becomes part of a path outside the volume.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        bail!("corrupt volume: a directory entry is named {:?}", OsStr::from_bytes(name));
    }
    Ok(())
}

/// The directories that a walk has entered. A directory has one name, so entering one twice means that the volume is
/// corrupt.
#[derive(Default)]
pub struct Visited(HashSet<InodeNo>);

impl Visited {
    /// Records that the walk enters `dir`. Fails if it did before.
    pub fn enter(&mut self, dir: &Node) -> Result<()> {
        ensure!(self.0.insert(dir.ino()), "corrupt volume: directory inode {} has two names", dir.ino());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_that_would_lead_elsewhere_are_refused() {
        assert!(check_name(b"a").is_ok() && check_name(b"\xff...").is_ok());
        assert!(check_name(b"").is_err() && check_name(b"../x").is_err() && check_name(b"a\0").is_err());
    }
}

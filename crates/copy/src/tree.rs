//! Iterates over directories of a volume that may be corrupt or hostile.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::error::{Result, bail, ensure};
use parext4::{DirBatch, FileType, InodeNo, InodeRef, Volume};

/// Iterator over the entries of a directory except "." and ".."; reads them in batches.
pub struct Entries {
    dir: InodeRef,
    batch: DirBatch,
    /// Index in the batch of the next entry.
    next: usize,
    /// The rest of the directory cannot be read.
    has_failed: bool,
}

/// An entry of a directory.
pub struct Entry {
    /// Its name, which can be part of a path.
    pub name: Vec<u8>,
    /// The number of the inode.
    pub ino: InodeNo,
    /// The type of the inode, as the directory has it.
    pub file_type: FileType,
    /// The inode that it names.
    pub node: parext4::Result<InodeRef>,
}

/// Iterates over the entries of `dir`. Ends after the error of a block that cannot be read.
pub fn entries(dir: &InodeRef) -> Result<Entries> {
    Ok(Entries { dir: dir.clone(), batch: dir.read_dir(0)?, next: 0, has_failed: false })
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.has_failed {
                return None;
            }
            let nth = self.next;
            self.next += 1;
            match self.batch.get(nth) {
                Some(item) if item.name == b"." || item.name == b".." => {}
                Some(item) => {
                    let (name, ino, file_type) = (item.name.clone(), item.ino, item.file_type);
                    let node = self.batch.node(nth);
                    return Some(check_name(&name).map(|()| Entry { name, ino, file_type, node }));
                }
                None => match self.refill() {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => {
                        self.has_failed = true;
                        return Some(Err(error));
                    }
                },
            }
        }
    }
}

impl Entries {
    /// Reads the next batch. Returns false at the end.
    fn refill(&mut self) -> Result<bool> {
        let Some(last) = self.batch.last() else { return Ok(false) };
        self.batch = self.dir.read_dir(last.cookie)?;
        self.next = 0;
        Ok(!self.batch.is_empty())
    }
}

/// Refuses names with a slash or a zero byte: a name becomes part of a path outside the volume.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        bail!("corrupt volume: a directory entry is named {:?}", OsStr::from_bytes(name));
    }
    Ok(())
}

/// The directories that a walk has entered, and their sizes. A sound directory has one name and blocks of its own, so the volume is corrupt if
/// the walk enters one twice, or more bytes than the volume has.
pub struct Visited {
    directories: HashSet<InodeNo>,
    /// Bytes that further directories can have.
    rest: u64,
}

impl Visited {
    /// No directories of `volume`.
    pub fn none(volume: &Volume) -> Self {
        let space = volume.space();
        Self { directories: HashSet::new(), rest: space.blocks.saturating_mul(space.block_size.into()) }
    }

    /// Records that the walk enters `dir`. Fails if it did before, and if other directories must share blocks with it.
    pub fn enter(&mut self, dir: &InodeRef) -> Result<()> {
        ensure!(
            self.directories.insert(dir.ino()),
            "corrupt volume: directory inode {} has two names",
            dir.ino()
        );
        let Some(rest) = self.rest.checked_sub(dir.metadata().size) else {
            bail!(
                "corrupt volume: the directories down to inode {} have more bytes than the volume",
                dir.ino()
            );
        };
        self.rest = rest;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Visited, check_name};

    #[test]
    fn names_that_would_lead_elsewhere_are_refused() {
        assert!(check_name(b"a").is_ok() && check_name(b"\xff...").is_ok());
        assert!(check_name(b"").is_err() && check_name(b"../x").is_err() && check_name(b"a\0").is_err());
    }

    #[test]
    fn directories_have_no_more_bytes_than_the_volume() {
        let volume = testkit::volume::scratch();
        let [one, two] = ["/one", "/two"].map(|path| volume.create_dir(path, 0o755).unwrap());
        let enough = one.metadata().size + two.metadata().size;
        for rest in [enough, enough - 1] {
            let mut visited = Visited { rest, ..Visited::none(&volume) };
            visited.enter(&one).unwrap();
            assert_eq!(visited.enter(&two).is_ok(), rest == enough);
            assert!(visited.enter(&one).is_err());
        }
    }
}

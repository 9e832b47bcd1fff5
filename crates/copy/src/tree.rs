//! Iterates over directories of a volume that may be corrupt or hostile.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use parext4::{DirEntry, FileType, InodeNo, InodeRef, ReadDir, Volume};

use crate::error::{Result, bail, ensure};

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
///
/// # Errors
/// If the first block cannot be read.
pub fn entries(dir: &InodeRef) -> Result<Entries> {
    let mut rest = dir.read_dir()?;
    Ok(Entries { first: rest.next().transpose()?, rest })
}

/// Iterator over the entries of a directory except "." and "..".
pub struct Entries {
    first: Option<DirEntry>,
    rest: ReadDir,
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.first.take().map(Ok).or_else(|| self.rest.next())?;
        Some(next.map_err(Into::into).and_then(|entry| {
            check_name(entry.name())?;
            let (ino, file_type, node) = (entry.ino(), entry.file_type(), entry.inode_ref());
            Ok(Entry { name: entry.name().to_vec(), ino, file_type, node })
        }))
    }
}

/// Refuses names with a slash or a zero byte: a name becomes part of a path outside the volume.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        bail!("corrupt volume: a directory entry is named {:?}", OsStr::from_bytes(name));
    }
    Ok(())
}

/// The directories that a walk has entered, and their sizes. A sound directory has one name and
/// blocks of its own, so the volume is corrupt if the walk enters one twice, or more bytes than the
/// volume has.
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

    /// Records that the walk enters `dir`.
    ///
    /// # Errors
    /// If the walk has entered it before, or if other directories must share blocks with it.
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

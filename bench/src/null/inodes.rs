//! The inodes of the null file system, and their names.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo};

/// All inodes and names. Nothing is ever removed but names.
pub struct Inodes {
    pub attrs: HashMap<INodeNo, FileAttr>,
    pub names: HashMap<(INodeNo, OsString), INodeNo>,
}

impl Inodes {
    /// Returns the inodes of an empty file system: its root directory.
    pub fn new() -> Self {
        let mut inodes = Self { attrs: HashMap::new(), names: HashMap::new() };
        inodes.add(FileType::Directory);
        inodes
    }

    /// Adds an inode with a name.
    pub fn create(&mut self, parent: INodeNo, name: &OsStr, kind: FileType) -> FileAttr {
        let attr = self.add(kind);
        self.names.insert((parent, name.to_owned()), attr.ino);
        attr
    }

    /// Returns the attributes of the inode with a name, if there is one.
    pub fn look_up(&self, parent: INodeNo, name: &OsStr) -> Option<&FileAttr> {
        self.names.get(&(parent, name.to_owned())).and_then(|ino| self.attrs.get(ino))
    }

    /// Returns the entries of a directory after `offset`. The offset of an entry is its inode
    /// number.
    pub fn entries_after(&self, dir: INodeNo, offset: u64) -> impl Iterator<Item = (&OsStr, INodeNo)> {
        let inside = self.names.iter().filter(|((parent, _), _)| *parent == dir);
        let mut entries: Vec<_> = inside.map(|((_, name), &child)| (&**name, child)).collect();
        entries.sort_unstable_by_key(|&(_, child)| child);
        entries.into_iter().filter(move |&(_, child)| child.0 > offset)
    }

    /// Extends a file to at least `end` bytes.
    pub fn extend(&mut self, ino: INodeNo, end: u64) {
        if let Some(attr) = self.attrs.get_mut(&ino) {
            attr.size = attr.size.max(end);
        }
    }

    fn add(&mut self, kind: FileType) -> FileAttr {
        let ino = INodeNo(self.attrs.len() as u64 + 1);
        let attr = FileAttr { ino, kind, perm: 0o755, nlink: 1, blksize: 4096, ..negative() };
        self.attrs.insert(ino, attr);
        attr
    }
}

/// Returns the attributes in the entry for a name that does not exist. The kernel caches such an
/// entry.
pub fn negative() -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

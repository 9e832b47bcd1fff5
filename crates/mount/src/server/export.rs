//! Looks up inodes by number, and their parents, for open_by_handle_at(2) and NFS exports
//! (`FUSE_EXPORT_SUPPORT`).
//!
//! The kernel makes the handle: the number under which it was told of the inode, and the
//! generation. For an inode that it has forgotten, it looks up `.` under that number, compares the
//! generation in the reply, and fails with `ESTALE` if they differ. To find the path of a directory
//! it looks up `..`. A privileged process can make up a handle with any number.

use fuser::INodeNo;
use parext4::server::ServerVolume as _;
use parext4::{FileType, InodeNo, InodeRef};

use super::Server;
use crate::protocol::attr::Entry;
use crate::protocol::{Failure, Outcome};

impl Server {
    /// Looks up the inode with a number, of any generation.
    ///
    /// # Errors
    /// `ESTALE` for numbers that are free or the file system's own, for inodes without a name, and
    /// for the root under its number in the volume: the kernel has a number of its own for the
    /// root, and must not know a directory by two numbers.
    pub fn lookup_number(&self, ino: INodeNo) -> Outcome<Entry> {
        if ino == INodeNo::ROOT {
            return Ok(self.entry_of_directory(&self.inode_ref(ino)?));
        }
        let number = InodeNo(u32::try_from(ino.0).map_err(|_| Failure::STALE)?);
        if number == InodeNo::ROOT {
            return Err(Failure::STALE);
        }
        Ok(self.entry_of_lookup(&self.volume()?.inode_by_number(number).map_err(Failure::of_number)?))
    }

    /// Looks up the parent of a directory.
    pub fn lookup_parent(&self, ino: INodeNo) -> Outcome<Entry> {
        let parent = self.inode_ref(ino)?.lookup(b"..").map_err(Failure::of_number)?;
        if parent.file_type() != FileType::Directory {
            return Err(Failure::STALE);
        }
        Ok(self.entry_of_directory(&parent))
    }

    /// Like [`entry_of_lookup`](Self::entry_of_lookup), for a directory, which may be the root.
    fn entry_of_directory(&self, dir: &InodeRef) -> Entry {
        if dir.ino() != InodeNo::ROOT {
            return self.entry_of_lookup(dir);
        }
        let mut entry = self.entry(dir);
        (entry.attr.ino, entry.generation) = (INodeNo::ROOT, 0);
        entry
    }
}

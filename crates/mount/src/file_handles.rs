//! Inodes that open_by_handle_at(2) and exports name by number, and their parents (`FUSE_EXPORT_SUPPORT`).
//!
//! A handle is the kernel's own: it holds the number under which the kernel was told of the inode, and the generation. For
//! an inode that the kernel has forgotten it looks up `.` under that number, compares the generation of the reply, and
//! fails with `ESTALE` if that is another. To find the path of a directory it looks up `..`. Both come for handles that a
//! privileged process has made up, too, with any number.

use fuser::INodeNo;
use parext4::{FileType, InodeNo, Node};

use crate::attr::Entry;
use crate::failure::{Failure, Outcome};
use crate::server::Server;

impl Server {
    /// Tells the kernel of the inode that has a number, whatever its generation.
    ///
    /// Fails with `ESTALE` for numbers that are free or the file system's own, for inodes without a name, and for the
    /// root under its number in the volume: the kernel knows it under another, and must not have a directory twice.
    pub fn by_number(&self, ino: INodeNo) -> Outcome<Entry> {
        if ino == INodeNo::ROOT {
            return Ok(self.tell_directory(&self.node(ino)?));
        }
        let number = InodeNo(u32::try_from(ino.0).map_err(|_| Failure::STALE)?);
        if number == InodeNo::ROOT {
            return Err(Failure::STALE);
        }
        Ok(self.tell(&self.volume.named_node(number).map_err(Failure::by_number)?))
    }

    /// Tells the kernel of the directory that a directory is in.
    pub fn parent(&self, ino: INodeNo) -> Outcome<Entry> {
        let parent = self.node(ino)?.lookup(b"..").map_err(Failure::by_number)?;
        if parent.file_type() != FileType::Directory {
            return Err(Failure::STALE);
        }
        Ok(self.tell_directory(&parent))
    }

    /// Tells the kernel of a directory, which may be the root.
    fn tell_directory(&self, dir: &Node) -> Entry {
        if dir.ino() != InodeNo::ROOT {
            return self.tell(dir);
        }
        let mut entry = self.entry(dir);
        (entry.attr.ino, entry.generation) = (INodeNo::ROOT, 0);
        entry
    }
}

//! The namespace: directories (linear and hash trees), paths, and the operations that add, move and
//! remove entries.
//!
//! Responsible for names, link counts and attributes. Not responsible for data. Invariant: all
//! changes of one call are in one journal handle, so after a crash either all of them or none are
//! on the device.
//!
//! # Locking
//! - A directory's entries are read under its lock of the entries shared and changed under it
//!   exclusively.
//! - An operation that needs several directories (rename, rmdir) looks up its names first, one lock
//!   at a time. Then it acquires all the locks in ascending inode number ([`lock::lock_all`]),
//!   checks that the names still name the same inodes, and starts over if not. Because all threads
//!   acquire the locks in one order, they cannot deadlock.
//! - A directory that moves from one parent to another also holds
//!   [`Engine::rename`](crate::engine::Engine), acquired before any directory. Only such moves
//!   change ancestors, so the check that a directory does not become its own descendant stays true
//!   until the move is done.
//! - The link count of an inode that is not a directory changes under the lock of its attributes,
//!   which is acquired after the directories and before the handle ([`links::lock_losing_link`]).
//! - Directories are locked before the journal handle begins. All errors that a caller can cause
//!   are checked before the first change, and the blocks of an insertion are allocated before any
//!   entry moves.
//! - An [`InodeRef`](crate::InodeRef) that is found on the way is declared before the locks, so
//!   that it is dropped after them: dropping the last one of an inode without names deletes the
//!   inode.

mod attributes;
mod batch;
mod cookie;
mod create;
mod dir;
mod dir_path;
mod entry;
mod file_times;
mod find;
mod flags;
mod htree;
mod index;
mod inline;
mod insert;
mod iter;
mod link;
mod links;
mod lock;
mod logged;
mod names;
mod new_inode;
mod owner;
mod project;
mod read_dir;
mod remove;
mod rename;
mod set_attributes;
mod split;
mod symlink;

pub use attributes::Metadata;
pub use entry::DirEntry;
pub use file_times::FileTimes;
pub(crate) use iter::PausedDir;
pub use iter::ReadDir;
pub use new_inode::{NewInode, Special};
pub use rename::RenameMode;
pub use set_attributes::SetAttributes;

use parext4_format::dir_entry;

use crate::error::{Error, Result};

/// Checks a name to be added, moved or removed.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > dir_entry::MAX_NAME {
        return Err(Error::NameTooLong(printable(name)));
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Error::invalid(format_args!("the name {:?}", printable(name))));
    }
    Ok(())
}

/// Returns a name in a form that can be printed.
pub(crate) fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

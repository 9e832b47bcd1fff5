//! Names: directories (linear and htree), paths, and the operations that make, move and remove entries.
//!
//! # Locking
//! - A directory's entries are read under its `Inode::entries` lock shared and changed under it exclusive.
//! - An operation that needs several directories (rename, rmdir) first looks its names up, one lock at a time,
//!   then takes all the locks in ascending inode number ([`lock::lock_all`]), then checks that the names still
//!   mean the same inodes, and starts over if not. So no order between parents and children is needed, and
//!   nobody can wait in a circle.
//! - A directory that moves from one parent to another also holds [`Engine::rename`](crate::engine::Engine), taken before any
//!   directory. Only such moves change who is whose ancestor, so the check that a directory does not end up
//!   below itself stays true until the move is done.
//! - The number of names of an inode that is not a directory changes under the lock of its attributes, which comes after
//!   the directories' and before the handle ([`links::lock_losing_link`]).
//! - Directory locks come before the journal handle. All that one call changes is in one handle, so that a
//!   crash leaves all of it or nothing; what a user's mistake can forbid is checked before the first change,
//!   and the blocks an insertion needs are all allocated before any entry moves.
//! - A [`Node`](crate::Node) found on the way is declared before the locks, so that it is dropped after them:
//!   dropping the last one of an unlinked inode deletes it.

mod attributes;
mod create;
mod dir;
mod find;
mod htree;
mod insert;
mod iter;
mod link;
mod links;
mod lock;
mod read_dir;
mod remove;
mod rename;
mod split;
mod symlink;

pub use attributes::{Metadata, SetAttributes};
pub use create::{NewInode, Special};
pub use iter::{DirEntry, ReadDir};
pub use read_dir::DirItem;
pub use rename::RenameMode;

use parext4_format::dir_entry;

use crate::error::{Error, Result};

/// Checks a name that is to be made, moved or removed.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > dir_entry::MAX_NAME {
        return Err(Error::NameTooLong(show(name)));
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Error::invalid(format_args!("the name {:?}", show(name))));
    }
    Ok(())
}

/// A name for people.
pub(crate) fn show(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

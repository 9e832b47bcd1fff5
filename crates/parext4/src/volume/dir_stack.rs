//! The directories on the path to the current one of a walk through a tree.
//!
//! The volume decides how deep the tree is. So the stack does not recurse, keeps at most
//! [`MAX_OPEN`] directories open, and pauses the listings above them.

use std::collections::{HashSet, VecDeque};

use parext4_format::InodeNo;

use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::namespace::{DirEntry, PausedDir, ReadDir};

/// Limit of open directories. Each keeps an inode in memory, and a batch of entries.
const MAX_OPEN: usize = 64;

/// The directories on the path to the current one.
#[derive(Debug)]
pub(super) struct DirStack {
    engine: EngineRef,
    /// The directories above the open ones, the topmost first.
    paused: Vec<PausedDir>,
    /// The open directories. The last one is the current one.
    open: VecDeque<ReadDir>,
    /// The inode numbers of all directories of the stack.
    inodes: HashSet<InodeNo>,
}

impl DirStack {
    pub(super) fn new(top: ReadDir) -> Self {
        Self {
            engine: top.dir().engine.clone(),
            paused: Vec::new(),
            inodes: HashSet::from([top.dir().ino()]),
            open: VecDeque::from([top]),
        }
    }

    /// Returns the listing of the current directory, or `None` after the top directory has been
    /// left.
    ///
    /// # Errors
    /// The errors of [`PausedDir::resume`]. The directory above becomes the current one.
    pub(super) fn current(&mut self) -> Result<Option<&mut ReadDir>> {
        if self.open.is_empty()
            && let Some(paused) = self.paused.pop()
        {
            self.inodes.remove(&paused.ino());
            let resumed = paused.resume(&self.engine)?;
            self.push(resumed);
        }
        Ok(self.open.back_mut())
    }

    /// Opens the directory that `entry` names, for [`enter`](Self::enter).
    ///
    /// # Errors
    /// [`Error::Loop`] if the directory is one of its own ancestors, as in a damaged volume; the
    /// errors of [`ReadDir::below`].
    pub(super) fn open(&self, entry: &DirEntry) -> Result<ReadDir> {
        let child = ReadDir::below(entry)?;
        if self.inodes.contains(&child.dir().ino()) {
            return Err(Error::Loop(format!("{}: the directory contains itself", entry.path().display())));
        }
        Ok(child)
    }

    /// Makes an opened directory the current one.
    pub(super) fn enter(&mut self, child: ReadDir) {
        if self.open.len() == MAX_OPEN {
            self.paused.extend(self.open.pop_front().map(ReadDir::pause));
        }
        self.push(child);
    }

    /// Makes the directory above the current one the new current one, and returns the listing that
    /// was left.
    pub(super) fn leave(&mut self) -> Option<ReadDir> {
        let left = self.open.pop_back()?;
        self.inodes.remove(&left.dir().ino());
        Some(left)
    }

    fn push(&mut self, dir: ReadDir) {
        self.inodes.insert(dir.dir().ino());
        self.open.push_back(dir);
    }
}

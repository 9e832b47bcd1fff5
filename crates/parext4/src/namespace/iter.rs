//! An iterator over the entries of a directory.

use super::DirItem;
use crate::error::Result;
use crate::node::Node;

/// Iterates over the entries of a directory, without `.` and `..`; see [`Node::read_dir`] for what it sees of
/// changes. Ends after the first error.
#[derive(Debug)]
pub struct ReadDir {
    dir: Node,
    batch: std::vec::IntoIter<DirItem>,
    after: u64,
    ended: bool,
}

impl ReadDir {
    /// Begins at the first entry of a directory.
    ///
    /// # Errors
    /// [`Error::NotDirectory`](crate::Error::NotDirectory).
    pub(crate) fn new(dir: Node) -> Result<Self> {
        dir.dir()?;
        Ok(Self { dir, batch: Vec::new().into_iter(), after: 0, ended: false })
    }

    /// Reads the next batch; `false` at the end.
    fn refill(&mut self) -> Result<bool> {
        let batch = self.dir.read_dir(self.after)?;
        let Some(last) = batch.last() else { return Ok(false) };
        self.after = last.cookie;
        self.batch = batch.into_iter();
        Ok(true)
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirItem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.batch.find(|item| !matches!(&item.name[..], b"." | b"..")) {
                return Some(Ok(item));
            }
            if self.ended {
                return None;
            }
            match self.refill() {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

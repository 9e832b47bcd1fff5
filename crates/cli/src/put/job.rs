//! Starts the copy of a file. Small files are gathered; files that the kernel makes up are copied at once; large files are copied in chunks.

use anyhow::Result;

use super::file::{FileCopy, FileJob};
use super::small::SmallFiles;
use crate::transfer::Job;

impl Job for FileJob {
    type Copy = FileCopy;
    type State = SmallFiles;

    fn start(self, small: &mut SmallFiles) -> Result<Option<FileCopy>> {
        let copy = self.open()?;
        if copy.may_be_made_up() {
            return copy.copy_to_end().map(|()| None);
        }
        if !copy.is_small() {
            return Ok(Some(copy));
        }
        small.add(copy)?;
        Ok(None)
    }
}

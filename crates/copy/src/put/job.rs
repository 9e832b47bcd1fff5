//! Starts the copy of a file. Small files are gathered; files that the kernel makes up are copied
//! at once; large files are copied in chunks.

use crate::error::Result;

use super::file::{FileCopy, FileJob};
use super::small::SmallFiles;
use crate::transfer::Job;

impl<'a> Job for FileJob<'a> {
    type Copy = FileCopy<'a>;
    type State = SmallFiles<'a>;

    fn start(self, small: &mut SmallFiles<'a>) -> Result<Option<FileCopy<'a>>> {
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

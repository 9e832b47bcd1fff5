//! The file that only one worker uses: its data is found at once, and it keeps its inode when it is
//! renamed.

use std::fs::File;

use rustix::fs::{SeekFrom, fstat, ftruncate, rename, seek, stat};
use rustix::io::{Errno, pwrite};

use super::super::clients::other_name;
use super::Worker;

impl Worker<'_> {
    /// Writes to the worker's own file, and searches for the data at once.
    pub(super) fn use_own_file(&mut self) {
        let (offset, byte) = (self.rng.below(64) * 4096, u8::try_from(1 + self.rng.below(255)).unwrap());
        let own = &self.own;
        let act = || -> Result<u64, Errno> {
            ftruncate(own, 0)?;
            pwrite(own, &[byte; 4096], offset)?;
            seek(own, SeekFrom::Data(0))
        };
        match self.call(|| format!("the search for data at {offset} of its own file"), act) {
            Ok(found) if found <= offset && offset - found < 4096 => {}
            Err(Errno::NOSPC) if self.run.is_full() => {}
            Err(Errno::NXIO) if self.run.reports_late() => {}
            other => self.fail(&format!("data at {offset} is found at {other:?}")),
        }
        if self.rng.chance(20) && !self.run.is_full() {
            let size =
                self.call(|| "fstat".to_owned(), || fstat(own)).map(|stat| stat.st_size.cast_unsigned());
            if size != Ok(offset + 4096) {
                self.fail(&format!("its own file has {size:?} bytes, not {}", offset + 4096));
            }
        }
    }

    /// Renames its own file over another one, and back. The name leads to the file of its handle.
    pub(super) fn rename_own_file(&mut self) {
        let (path, own) = (self.run.own_path(self.nth), &self.own);
        let other = other_name(&path);
        let act = || -> Result<bool, Errno> {
            File::create(&other).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            rename(&path, &other)?;
            let is_there = stat(&other)?.st_ino == fstat(own)?.st_ino
                && stat(&path).is_err_and(|error| error == Errno::NOENT);
            rename(&other, &path)?;
            Ok(is_there)
        };
        match self.call(|| "a rename of its own file".to_owned(), act) {
            Ok(true) => {}
            Err(Errno::NOSPC) if self.run.is_full() => {}
            other => self.fail(&format!("a rename of its own file came to {other:?}")),
        }
    }
}

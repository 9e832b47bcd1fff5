//! Buffered I/O: reads and writes of any alignment, by any number of threads at once, on the volume's page cache.
//!
//! A read holds its bytes shared, a write exclusively, while it copies: no lock else, no journal handle, and no look at
//! the map where the pages are there. Data gets its place on the device when it is [written back](crate::writeback); what it
//! will need is kept for it when it is written (delayed allocation).

mod fill;
mod options;
mod page_fault;
mod read;
mod read_ahead;
mod replacement;
mod sync;
mod untorn;
mod write;

pub use options::{Atomicity, BufferedOptions, SyncMode};
use rangelock::ByteRange;

use self::read_ahead::ReadAhead;
use super::DirectFile;
use crate::error::{Error, Result};
use crate::inode::Cached;
use crate::page_cache::FilePages;
use crate::sync::atomic::AtomicU32;
use crate::sync::{Rank, hold};

/// An open file that is read and written through the page cache. All methods take `&self`: share one between any
/// number of threads.
///
/// Offsets and lengths are any. Unless [`Atomicity::Page`] is asked for, a read never sees half of a write, as with a
/// [`DirectFile`]; both kinds of handles may be used on one file at once and see each other's writes. Data is durable after
/// [`sync_data`](Self::sync_data), and written back some time later otherwise.
///
/// ```
/// use std::sync::Arc;
/// use parext4::{BufferedOptions, MemDevice, MkfsOptions, VolumeOptions, Volume, mkfs};
///
/// # fn main() -> Result<(), parext4::Error> {
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::default())?;
/// let volume = Volume::open_device(device, &VolumeOptions::default())?;
/// let file = volume.create("/notes", 0o644)?.buffered(BufferedOptions::default())?;
/// file.write_at(b"to be", 0)?;
/// file.append(b" or not to be")?;
/// file.sync_data()?;
/// let mut text = [0; 18];
/// assert_eq!(file.read_at(&mut text, 0)?, 18);
/// assert_eq!(&text, b"to be or not to be");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct File {
    file: DirectFile,
    options: BufferedOptions,
    /// The failures to write back that this handle has heard of.
    heard: AtomicU32,
    read_ahead: ReadAhead,
}

impl DirectFile {
    /// The file, to be read and written through the page cache.
    ///
    /// # Errors
    /// If the volume is closed.
    pub fn buffered(&self, options: BufferedOptions) -> Result<File> {
        let _in_flight = self.engine().in_flight.enter()?;
        if self.inode().cached().is_none() {
            // Nobody is under way who would not know that pages may come into being.
            let _order = hold(Rank::Range);
            let _alone = self.inode().ranges.exclusive(ByteRange::ALL);
            self.engine().idle_cache.start(&self.engine().pages);
            self.inode().cached_or_init(|| Cached::new(FilePages::new(&self.engine().pages)));
        }
        let heard = AtomicU32::new(self.inode().cached().map_or(0, |cached| cached.failures.now()));
        Ok(File { file: self.clone(), options, heard, read_ahead: ReadAhead::new() })
    }
}

impl File {
    /// The file for direct I/O.
    #[must_use]
    pub fn file(&self) -> &DirectFile {
        &self.file
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// Sets the size in bytes, as [`DirectFile::set_len`].
    ///
    /// # Errors
    /// As there.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.file.set_len(size)
    }

    /// What the page cache has of the file.
    fn cached(&self) -> Result<&Cached> {
        self.file.cached_pages()
    }
}

impl DirectFile {
    /// What the page cache has of a file that was opened for it.
    fn cached_pages(&self) -> Result<&Cached> {
        self.inode().cached().ok_or_else(|| Error::invalid("the file was not opened for buffered I/O"))
    }

    /// Notes that a page has become dirty.
    fn note_dirty(&self, cached: &Cached) {
        self.engine().note_dirty(self.inode(), cached);
    }
}

/// Another handle, with failures to hear of and read-ahead of its own.
impl Clone for File {
    fn clone(&self) -> Self {
        let heard = AtomicU32::new(self.file.inode().cached().map_or(0, |cached| cached.failures.now()));
        Self { file: self.file.clone(), options: self.options, heard, read_ahead: ReadAhead::new() }
    }
}

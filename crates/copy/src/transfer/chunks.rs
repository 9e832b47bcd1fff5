//! Copies one file in chunks by any number of threads.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::error::Result;

/// Bytes that one thread copies at a time.
pub const CHUNK: usize = 2 << 20;
/// Chunks start at multiples of this many bytes: the largest sector of a direct device.
pub const GRAIN: u64 = 4096;

/// An open file that is being copied.
pub trait Copy: Send + Sync {
    /// Bytes that the copy will have.
    fn size(&self) -> u64;

    /// The first bytes at or after `from` that are not a hole; `None` if there are no more.
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>>;

    /// Copies `len` bytes from `offset`, a multiple of [`GRAIN`]. `buffer` holds at least `len`
    /// bytes rounded up to `GRAIN`. Called by several threads at once, for disjoint ranges.
    fn copy(&self, offset: u64, len: usize, buffer: &mut [u8]) -> Result<()>;

    /// Called once after all is copied.
    fn finish(&self) -> Result<()>;
}

/// A file and the position up to which its data has been given to threads.
pub struct Chunks<C> {
    copy: C,
    cursor: Mutex<Cursor>,
}

#[derive(Default)]
struct Cursor {
    /// Data that is found and not yet given to a thread.
    data: Range<u64>,
    /// All data has been given to threads.
    exhausted: bool,
    /// Chunks that threads are copying.
    in_flight: usize,
    /// A thread finishes the file, or has finished it.
    finished: bool,
    /// A chunk has failed, and the rest is not copied.
    failed: bool,
}

enum Next {
    Chunk {
        offset: u64,
        len: usize,
    },
    /// All chunks are copied; the caller finishes the file.
    Finish,
    /// Other threads copy the rest.
    Nothing,
}

impl<C: Copy> Chunks<C> {
    pub fn new(copy: C) -> Self {
        Self { copy, cursor: Mutex::default() }
    }

    /// Returns the number of threads beyond the first that can help.
    pub fn helpers(&self) -> usize {
        usize::try_from(self.copy.size().saturating_sub(1) / CHUNK as u64).unwrap_or(usize::MAX)
    }

    /// Copies chunks until none is left or `stopped` returns true.
    ///
    /// # Errors
    /// The first error of the file; it ends the file for all threads.
    pub fn copy(&self, buffer: &mut [u8], stopped: impl Fn() -> bool) -> Result<()> {
        let copied = self.copy_chunks(buffer, stopped);
        let is_first = copied.is_err() && !std::mem::replace(&mut self.lock().failed, true);
        if is_first { copied } else { Ok(()) }
    }

    fn copy_chunks(&self, buffer: &mut [u8], stopped: impl Fn() -> bool) -> Result<()> {
        while !stopped() {
            match self.next()? {
                Next::Chunk { offset, len } => {
                    self.copy.copy(offset, len, buffer)?;
                    self.lock().in_flight -= 1;
                }
                Next::Finish => return self.copy.finish(),
                Next::Nothing => break,
            }
        }
        Ok(())
    }

    fn next(&self) -> Result<Next> {
        let mut cursor = self.lock();
        if cursor.failed {
            return Ok(Next::Nothing);
        }
        if !cursor.exhausted && cursor.data.is_empty() {
            match self.find(cursor.data.end)? {
                Some(data) => cursor.data = data,
                None => cursor.exhausted = true,
            }
        }
        if !cursor.exhausted {
            let offset = cursor.data.start;
            let len = (cursor.data.end - offset).min(CHUNK as u64);
            // The chunk that gives the copy its full length is copied last, so that a copy of full
            // length is complete.
            if offset + len >= self.copy.size() && cursor.in_flight > 0 {
                return Ok(Next::Nothing);
            }
            cursor.data.start += len;
            cursor.in_flight += 1;
            return Ok(Next::Chunk { offset, len: usize::try_from(len).unwrap_or(CHUNK) });
        }
        if cursor.in_flight > 0 || cursor.finished {
            return Ok(Next::Nothing);
        }
        cursor.finished = true;
        Ok(Next::Finish)
    }

    /// The next data from `from`, rounded out to grains and cut at the file's end.
    fn find(&self, from: u64) -> Result<Option<Range<u64>>> {
        let size = self.copy.size();
        if from >= size {
            return Ok(None);
        }
        let Some(data) = self.copy.next_data(from)? else { return Ok(None) };
        let start = (data.start - data.start % GRAIN).max(from);
        let end = data.end.checked_next_multiple_of(GRAIN).map_or(size, |end| end.min(size));
        Ok((start < end).then_some(start..end))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of which only `data` is not a hole; it notes what is asked of it.
    struct Fake {
        size: u64,
        data: Vec<Range<u64>>,
        copied: Mutex<Vec<Range<u64>>>,
        finished: Mutex<u32>,
    }

    impl Copy for Fake {
        fn size(&self) -> u64 {
            self.size
        }
        fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
            let next = self.data.iter().find(|range| range.end > from);
            Ok(next.map(|range| range.start.max(from)..range.end))
        }
        fn copy(&self, offset: u64, len: usize, buffer: &mut [u8]) -> Result<()> {
            assert!(offset.is_multiple_of(GRAIN));
            crate::error::ensure!(len <= buffer.len(), "a buffer of {} bytes", buffer.len());
            self.copied.lock().unwrap().push(offset..offset + len as u64);
            Ok(())
        }
        fn finish(&self) -> Result<()> {
            *self.finished.lock().unwrap() += 1;
            Ok(())
        }
    }

    /// Starts and ends of what is copied of a file.
    fn copied(size: u64, data: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let data = data.iter().map(|&(start, end)| start..end).collect();
        let file = Fake { size, data, copied: Mutex::default(), finished: Mutex::default() };
        let chunks = Chunks::new(file);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| chunks.copy(&mut vec![0; CHUNK], || false).unwrap());
            }
        });
        assert_eq!(*chunks.copy.finished.lock().unwrap(), 1);
        let copied = chunks.copy.copied.into_inner().unwrap();
        let mut copied: Vec<_> = copied.into_iter().map(|range| (range.start, range.end)).collect();
        copied.sort_unstable();
        copied
    }

    fn fake(size: u64) -> Fake {
        let data = std::iter::once(0..size).collect();
        Fake { size, data, copied: Mutex::default(), finished: Mutex::default() }
    }

    #[test]
    fn the_chunk_that_gives_a_copy_its_length_is_the_last() {
        let chunks = Chunks::new(fake(2 * CHUNK as u64 + 1));
        let next = || match chunks.next().unwrap() {
            Next::Chunk { offset, .. } => Some(offset),
            Next::Nothing => None,
            Next::Finish => Some(u64::MAX),
        };
        assert_eq!([next(), next(), next()], [Some(0), Some(CHUNK as u64), None]);
        chunks.lock().in_flight -= 1;
        assert_eq!(next(), None);
        chunks.lock().in_flight -= 1;
        assert_eq!([next(), next()], [Some(2 * CHUNK as u64), None]);
        chunks.lock().in_flight -= 1;
        assert_eq!([next(), next()], [Some(u64::MAX), None]);
    }

    #[test]
    fn a_file_fails_once_and_is_not_finished() {
        let chunks = Chunks::new(fake(8 * CHUNK as u64));
        // A buffer that is too small makes each chunk fail.
        let copy = || chunks.copy(&mut [0; 1], || false);
        assert!(copy().is_err() && copy().is_ok() && copy().is_ok());
        assert_eq!(*chunks.copy.finished.lock().unwrap(), 0);
    }

    #[test]
    fn data_is_copied_once_and_holes_are_not() {
        const MIB: u64 = 1 << 20;
        assert_eq!(copied(0, &[]), []);
        assert_eq!(copied(10 * MIB, &[]), []);
        assert_eq!(copied(5000, &[(0, 5000)]), [(0, 5000)]);
        let chunks = [(0, 2 * MIB), (2 * MIB, 4 * MIB), (4 * MIB, 5 * MIB)];
        assert_eq!(copied(5 * MIB, &[(0, 5 * MIB)]), chunks);
        // Rounded out to grains, which two ranges may share.
        let chunks = [(4096, 8192), (8192, 12288), (49152, 100_000)];
        assert_eq!(copied(100_000, &[(5000, 6000), (7000, 9000), (50_000, u64::MAX)]), chunks);
    }
}

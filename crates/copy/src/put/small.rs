//! Copying small files, many at a time.
//!
//! A thread reads small files until it has [`GATHERED`] bytes of them. Then it submits their writes
//! to a queue of its own, one right after the other: so their blocks mostly lie together, and one
//! request to the device writes many files. The thread goes on reading files while the device
//! writes.

use crate::error::Result;
use parext4::{AlignedBuf, Completion, IoFlags, IoQueue, IoRequest, SetAttributes, Volume};
use slab::Slab;

use super::file::{CreatedFile, FileCopy, SMALL};
use crate::transfer::{GRAIN, WorkerState};

/// Bytes of small files that are submitted together.
const GATHERED: usize = 1 << 20;
/// The largest number of files that are submitted together.
const FILES: usize = 64;
/// The smallest buffer, in bytes: the largest sector of a direct device.
const MIN: usize = GRAIN as usize;
/// The number of buffer sizes, from `MIN` to `SMALL` by powers of two.
const SIZES: usize = (SMALL / MIN).ilog2() as usize + 1;
/// The largest number of requests that the queue has in flight.
const DEPTH: u32 = 32;

/// A small file that was read and is not yet submitted.
struct Small<'a> {
    created: CreatedFile<'a>,
    attributes: SetAttributes,
    /// The contents are the first `len` bytes.
    buf: AlignedBuf,
    len: usize,
}

/// A small file that is being written.
struct Writing<'a> {
    created: CreatedFile<'a>,
    attributes: SetAttributes,
    len: usize,
}

/// The small files that one thread copies.
pub struct SmallFiles<'a> {
    queue: IoQueue,
    /// Each file is completed before the next one is read, so that files get the same blocks each
    /// time.
    one_by_one: bool,
    gathered: Vec<Small<'a>>,
    /// Total length of the gathered files in bytes.
    bytes: usize,
    /// The files whose writes are in flight, by the token of the write.
    writing: Slab<Writing<'a>>,
    /// Empty; kept for its memory.
    done: Vec<Completion>,
    buffers: Buffers,
}

/// Buffers to be used again: to allocate one for each file would take longer than to read the file.
#[derive(Default)]
struct Buffers {
    /// By [`index`].
    free: [Vec<AlignedBuf>; SIZES],
}

impl Buffers {
    /// Returns a buffer of at least `len` bytes, at most [`SMALL`]. Its contents are unspecified.
    fn take(&mut self, len: usize) -> AlignedBuf {
        let size = len.next_power_of_two().max(MIN);
        self.free[index(size)].pop().unwrap_or_else(|| AlignedBuf::zeroed(size))
    }

    fn put(&mut self, buf: AlignedBuf) {
        self.free[index(buf.len())].push(buf);
    }
}

/// The index of buffers of `size` bytes.
fn index(size: usize) -> usize {
    (size / MIN).ilog2() as usize
}

impl<'a> SmallFiles<'a> {
    pub fn new(volume: &Volume, one_by_one: bool) -> Self {
        let queue = volume.io_queue(DEPTH);
        let (gathered, writing, done) = Default::default();
        Self { queue, one_by_one, gathered, bytes: 0, writing, done, buffers: Buffers::default() }
    }

    /// Reads a small file, to be written later. Fails with the error of this file, or with one that
    /// ends the copy.
    pub fn add(&mut self, copy: FileCopy<'a>) -> Result<()> {
        let small = read(copy, &mut self.buffers)?;
        self.bytes += small.len;
        self.gathered.push(small);
        if self.one_by_one {
            self.submit()?;
            self.complete(0)?;
        } else if self.bytes >= GATHERED || self.gathered.len() >= FILES {
            self.submit()?;
            // Files that were submitted earlier have had time to be written.
            self.complete(FILES)?;
        }
        Ok(())
    }

    /// Begins to write what is gathered.
    fn submit(&mut self) -> Result<()> {
        self.bytes = 0;
        for Small { created, attributes, buf, len } in self.gathered.drain(..) {
            let entry = self.writing.vacant_entry();
            let (token, write) = (entry.key() as u64, IoRequest::Write { buf, len, offset: 0 });
            self.queue.submit(&created.file, write, token, IoFlags::new());
            entry.insert(Writing { created, attributes, len });
        }
        self.harvest(false)
    }

    /// Completes files until at most `left` are being written.
    fn complete(&mut self, left: usize) -> Result<()> {
        while self.writing.len() > left {
            self.harvest(true)?;
        }
        Ok(())
    }

    /// Completes the files whose writes are done, and reports the ones that failed. Fails with an
    /// error that ends the copy, after all of them.
    fn harvest(&mut self, wait: bool) -> Result<()> {
        match wait {
            true => self.queue.harvest(&mut self.done)?,
            false => self.queue.try_harvest(&mut self.done)?,
        }
        let mut ended = Ok(());
        for completion in self.done.drain(..) {
            let Writing { created, attributes, len } =
                self.writing.remove(usize::try_from(completion.token)?);
            completion.buf.into_iter().for_each(|buf| self.buffers.put(buf));
            let finished = created.written(completion.result, len).and_then(|()| created.finish(&attributes));
            match created.report().skip(finished) {
                Ok(_) => {}
                Err(error) if ended.is_ok() => ended = Err(error),
                Err(error) => created.report().error(error),
            }
        }
        ended
    }
}

/// Reads all of a small file, and closes it.
fn read<'a>(copy: FileCopy<'a>, buffers: &mut Buffers) -> Result<Small<'a>> {
    let len = usize::try_from(copy.created.size)?;
    let mut buf = buffers.take(len);
    copy.read(&mut buf[..len], 0)?;
    Ok(Small { attributes: copy.copy_xattrs()?, created: copy.created, buf, len })
}

impl WorkerState for SmallFiles<'_> {
    fn finish(mut self) -> Result<()> {
        let mut ended = self.submit();
        // Also after an error: the writes of other files succeed.
        while !self.writing.is_empty() {
            ended = ended.and(self.harvest(true));
        }
        ended
    }
}

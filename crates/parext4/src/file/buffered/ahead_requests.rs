//! Requests of one read-ahead, with several in flight on a queue of the device.
//!
//! Responsible for filling pages before a reader asks for them. Not responsible for choosing them:
//! [`read_ahead`](super::read_ahead) does. A page that is claimed here makes its readers wait, so
//! this thread waits for no page and no range.

use parext4_device::{BufferPool, Done, Op, Queue, Request};
use rangelock::ByteRange;
use smallvec::SmallVec;

use crate::block_io::object_end;
use crate::convert::to_usize;
use crate::dirty_files::QUEUE_DEPTH;
use crate::error::{Error, Result};
use crate::file::DirectFile;
use crate::inode::Cached;
use crate::mapping::{BlockState, Mapping};
use crate::page_cache::{Fill, PageIndex, PageRange};

/// The most bytes of one request. The first pages of a longer read-ahead are ready while later ones
/// are on their way.
const MOST: u64 = 256 << 10;

/// Claimed pages that are contiguous in the file.
type Fills<'a> = SmallVec<[Fill<'a>; 4]>;

/// The requests of one read-ahead.
struct Requests<'a, 'q> {
    file: &'a DirectFile,
    queue: &'q mut dyn Queue,
    /// The pages of the requests in flight. The token of a request is the index of its pages.
    in_flight: Vec<Fills<'a>>,
    done: Vec<Done>,
}

impl DirectFile {
    /// Reads the missing ones of `pages`, which lie in the file, as far as the cache has or evicts
    /// memory for them.
    ///
    /// # Errors
    /// The errors of the device and of a corrupt map. Every page is filled or missing again then.
    pub(super) fn fill_ahead(&self, cached: &Cached, pages: PageRange, queue: &mut dyn Queue) -> Result<()> {
        let mut requests = Requests { file: self, queue, in_flight: Vec::new(), done: Vec::new() };
        let started = requests.start_all(cached, pages);
        started.and(requests.finish())
    }
}

impl<'a> Requests<'a, '_> {
    /// Starts the requests for all missing pages.
    fn start_all(&mut self, cached: &'a Cached, pages: PageRange) -> Result<()> {
        let (mut fills, mut most) = (Fills::new(), 0);
        for index in pages.pages() {
            let fill = cached.pages.try_claim(index);
            if fill.is_none() || fills.len() == most {
                self.start(std::mem::take(&mut fills))?;
            }
            if fills.is_empty() && fill.is_some() {
                most = self.file.pages_of_request(index)?;
            }
            fills.extend(fill);
        }
        self.start(fills)
    }

    /// Starts the request for claimed pages. Fills them at once if they are not one run of written
    /// blocks.
    fn start(&mut self, fills: Fills<'a>) -> Result<()> {
        let Some(first) = fills.first().map(Fill::index) else { return Ok(()) };
        let len = fills.len() * self.file.engine().page_size().bytes();
        let Some(offset) = self.file.written_at(first, len)? else { return self.file.fill_claimed(fills) };
        let op = Op::Read { offset, buf: BufferPool::global().take_aligned(len), len };
        self.queue.submit(Request { token: self.in_flight.len() as u64, op });
        self.in_flight.push(fills);
        self.harvest(self.queue.in_flight() >= QUEUE_DEPTH as usize)
    }

    /// Waits for all requests. Returns the first failure.
    fn finish(mut self) -> Result<()> {
        let mut first = Ok(());
        while self.queue.in_flight() > 0 {
            let before = self.queue.in_flight();
            let harvested = self.harvest(true);
            let is_broken = harvested.is_err() && self.queue.in_flight() == before;
            first = first.and(harvested);
            if is_broken {
                break;
            }
        }
        first
    }

    /// Fills the pages of the requests that are done; with `wait`, waits for one.
    fn harvest(&mut self, wait: bool) -> Result<()> {
        let harvested = self.queue.harvest(wait, &mut self.done);
        let mut first = harvested.map_err(|error| Error::device("reading ahead", error));
        for Done { token, result, op } in self.done.drain(..) {
            let fills = std::mem::take(&mut self.in_flight[to_usize(token)]);
            let Op::Read { offset, buf, .. } = op else { continue };
            match result {
                Ok(()) => self.file.write_all(fills, &buf),
                Err(error) => first = first.and(Err(self.file.node.read_failed(offset, error))),
            }
            BufferPool::global().recycle(buf);
        }
        first
    }
}

impl DirectFile {
    /// Returns the number of pages of a request that begins at `first`: as many as remain in the
    /// object of the device, at most [`MOST`] bytes. So the requests of a contiguous file do not
    /// cross objects.
    fn pages_of_request(&self, first: PageIndex) -> Result<usize> {
        let (object_size, page_size) = (self.engine().device().object_size(), self.engine().page_size());
        let most = page_size.pages_in(MOST) as usize;
        if object_size.is_none() {
            return Ok(most);
        }
        let Some(offset) = self.written_at(first, page_size.bytes())? else { return Ok(most) };
        let rest = page_size.pages_in(object_end(object_size, offset) - offset);
        Ok(most.min(rest as usize))
    }

    /// Returns where the `len` bytes of the file from page `first` on are on the device, if they
    /// are written blocks in one piece and need not be verified.
    fn written_at(&self, first: PageIndex, len: usize) -> Result<Option<u64>> {
        let start = self.engine().page_size().start(first);
        let bytes = ByteRange::new(start, start + len as u64);
        // Loads the size before reading any block, as every read of pages does.
        if bytes.end() > self.size() || self.inode().has_verity() {
            return Ok(None);
        }
        let runs = self.node.runs(self.node.blocks_of(bytes))?;
        let written = match runs.as_slice() {
            [Mapping { state: BlockState::Written(block), .. }] => Some(self.node.device_offset(*block, 0)),
            _ => None,
        };
        Ok(written)
    }
}

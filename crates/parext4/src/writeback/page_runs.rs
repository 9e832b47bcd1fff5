//! Pages in write-back, with a copy of their contents.
//!
//! Responsible for collecting pages into runs and copying them under the held range. Not
//! responsible for writing them: [`batch`](super::batch) does that.

use parext4_device::{AlignedBuf, BufferPool};
use parext4_format::BlockRange;
use smallvec::SmallVec;

use crate::convert::to_usize;
use crate::inode_ref::{HeldPages, Units};
use crate::page_cache::{PageIndex, PageRange, PageSize, WriteBack};
use crate::sync::Arc;

/// Consecutive pages in write-back. The first and the last are dirty; at most [`GAP`](super::GAP)
/// bytes of clean pages lie between two dirty ones.
pub(super) struct PageRun<'a> {
    first: PageIndex,
    pub pages: Pages<'a>,
    /// Offset of the copy in the batch's [`Contents`], in bytes.
    copy: usize,
    /// The file's size when the pages were copied. The size on disk must cover them once they are
    /// written.
    pub size: u64,
}

type Pages<'a> = SmallVec<[(PageIndex, WriteBack<'a>); 8]>;

/// Ranges of file blocks.
pub(super) type Segments = SmallVec<[BlockRange; 4]>;

/// The contents of all pages of a batch, in one buffer.
pub(super) struct Contents {
    bytes: AlignedBuf,
    /// Number of bytes in use.
    used: usize,
    page_size: PageSize,
}

impl Contents {
    /// Returns a buffer with room for the pages of `runs`.
    pub(crate) fn with_room(runs: &[PageRange], page_size: PageSize) -> Self {
        let pages: usize = runs.iter().map(|run| run.len() as usize).sum();
        Self { bytes: BufferPool::global().take_aligned(pages * page_size.bytes()), used: 0, page_size }
    }

    /// Copies the contents of `pages`. Returns the offset of the copy.
    fn copy(&mut self, pages: &Pages<'_>) -> usize {
        let (start, page_size) = (self.used, self.page_size.bytes());
        self.used += pages.len() * page_size;
        for ((_, page), bytes) in pages.iter().zip(self.bytes[start..self.used].chunks_exact_mut(page_size)) {
            page.read(0, bytes);
        }
        start
    }

    /// Returns the buffer, shared with the requests that read from it.
    pub(crate) fn into_shared(self) -> Arc<AlignedBuf> {
        Arc::new(self.bytes)
    }
}

/// Collects pages in ascending order into runs.
pub(super) struct PageCollector<'a, 'c> {
    /// All pages that may be added.
    held: HeldPages<'c>,
    size: u64,
    contents: &'c mut Contents,
    pages: Pages<'a>,
    page_runs: Vec<PageRun<'a>>,
}

impl<'a, 'c> PageCollector<'a, 'c> {
    /// Returns an empty collector. `size` is the file's size; `contents` has room for all pages.
    pub(crate) fn new(held: HeldPages<'c>, size: u64, contents: &'c mut Contents) -> Self {
        Self { held, size, contents, pages: Pages::new(), page_runs: Vec::new() }
    }

    /// Returns true if the last page added is the one before `index`.
    pub(crate) fn reaches(&self, index: PageIndex) -> bool {
        self.pages.last().is_some_and(|&(last, _)| last + 1 == index)
    }

    /// Adds a page. A clean page is released if no dirty page follows it in its run.
    pub(crate) fn add(&mut self, index: PageIndex, page: WriteBack<'a>) {
        if !self.reaches(index) {
            self.end_run();
        }
        self.pages.push((index, page));
    }

    /// Copies the contents of the added pages and returns their runs.
    pub(crate) fn finish(mut self) -> Vec<PageRun<'a>> {
        self.end_run();
        self.page_runs
    }

    fn end_run(&mut self) {
        let end = self.pages.iter().rposition(|(_, page)| page.dirty() != 0).map_or(0, |last| last + 1);
        self.pages.truncate(end);
        let pages = std::mem::take(&mut self.pages);
        if let Some(&(first, _)) = pages.first() {
            let _held = self.held.part(PageRange::new(first, first + pages.len() as u32));
            let copy = self.contents.copy(&pages);
            self.page_runs.push(PageRun { first, pages, copy, size: self.size });
        }
    }
}

impl PageRun<'_> {
    /// Returns the number of dirty pages.
    pub(crate) fn dirty_pages(&self) -> u32 {
        self.pages.iter().map(|(_, page)| u32::from(page.dirty() != 0)).sum()
    }

    /// Returns the number of blocks that the pages have reserved.
    pub(crate) fn reserved_blocks(&self, units: Units) -> u32 {
        self.pages.iter().map(|(_, page)| units.blocks_in(page.reserved())).sum()
    }

    /// Returns the runs of dirty blocks.
    pub(crate) fn segments(&self, units: Units) -> Segments {
        let mut segments = Segments::new();
        for (index, page) in &self.pages {
            for (block, mask) in units.of_page(*index) {
                if page.dirty() & mask == 0 {
                    continue;
                }
                match segments.last_mut() {
                    Some(last) if last.end() == block.to_u64() => {
                        *last = BlockRange::clamped(last.start().to_u64(), last.end() + 1);
                    }
                    _ => segments.push(BlockRange::of_block(block)),
                }
            }
        }
        segments
    }

    /// Returns the position of byte `offset` of the file in the batch's [`Contents`].
    pub(crate) fn position(&self, offset: u64, page_size: PageSize) -> usize {
        self.copy + to_usize(offset - page_size.start(self.first))
    }

    /// Ends the write-back of all pages. A page becomes clean unless it was changed meanwhile.
    pub(crate) fn clean(&mut self) {
        self.pages.drain(..).for_each(|(_, page)| page.finish(true));
    }
}

//! Pages taken for write-back, with a copy of their contents.

use std::ops::Range;

use parext4_device::{AlignedBuf, BufferPool};
use smallvec::SmallVec;

use super::{Units, byte_of};
use crate::page_cache::{PAGE, WriteBack};
use crate::sync::Arc;

/// Consecutive pages of a file. The first and the last are dirty; between two dirty ones lie at most
/// [`GAP`](super::GAP) clean ones.
pub(super) struct Taken<'a> {
    first: u32,
    pub pages: Pages<'a>,
    /// Where the copy of their contents begins in the batch's [`Contents`], in bytes.
    copy: usize,
    /// The file's size when the pages were taken. It covers them until they are written.
    pub size: u64,
}

type Pages<'a> = SmallVec<[(u32, WriteBack<'a>); 8]>;

/// Ranges of file blocks.
pub(super) type Segments = SmallVec<[Range<u32>; 4]>;

/// The contents of all pages of a batch, in one buffer: a batch never needs more than that.
pub(super) struct Contents {
    bytes: AlignedBuf,
    /// Bytes that hold contents.
    used: usize,
}

impl Contents {
    /// Returns room for the contents of all pages in `runs`.
    pub(crate) fn with_room(runs: &[Range<u32>]) -> Self {
        let pages: usize = runs.iter().map(ExactSizeIterator::len).sum();
        Self { bytes: BufferPool::global().take_aligned(pages * PAGE), used: 0 }
    }

    /// Copies the contents of `pages`. Returns where they begin.
    fn copy(&mut self, pages: &Pages<'_>) -> usize {
        let start = self.used;
        self.used += pages.len() * PAGE;
        for ((_, page), bytes) in pages.iter().zip(self.bytes[start..self.used].chunks_exact_mut(PAGE)) {
            page.read(0, bytes);
        }
        start
    }

    /// Returns the buffer, for requests to read from.
    pub(crate) fn share(self) -> Arc<AlignedBuf> {
        Arc::new(self.bytes)
    }
}

/// Collects pages in ascending order. The caller holds the range of all of them.
pub(super) struct Taking<'a, 'c> {
    size: u64,
    contents: &'c mut Contents,
    pages: Pages<'a>,
    taken: Vec<Taken<'a>>,
}

impl<'a, 'c> Taking<'a, 'c> {
    /// `size` is the file's. Contents are copied to `contents`, which has room for them.
    pub(crate) fn new(size: u64, contents: &'c mut Contents) -> Self {
        Self { size, contents, pages: Pages::new(), taken: Vec::new() }
    }

    /// Returns whether the last page taken is the one before `index`.
    pub(crate) fn reaches(&self, index: u32) -> bool {
        self.pages.last().is_some_and(|(last, _)| last + 1 == index)
    }

    /// Adds a page. A clean one is released if no dirty one follows it.
    pub(crate) fn add(&mut self, index: u32, page: WriteBack<'a>) {
        if !self.reaches(index) {
            self.end_piece();
        }
        self.pages.push((index, page));
    }

    /// Copies the contents of the added pages and returns them.
    pub(crate) fn finish(mut self) -> Vec<Taken<'a>> {
        self.end_piece();
        self.taken
    }

    fn end_piece(&mut self) {
        let end = self.pages.iter().rposition(|(_, page)| page.dirty() != 0).map_or(0, |last| last + 1);
        self.pages.truncate(end);
        let pages = std::mem::take(&mut self.pages);
        if let Some(&(first, _)) = pages.first() {
            let copy = self.contents.copy(&pages);
            self.taken.push(Taken { first, pages, copy, size: self.size });
        }
    }
}

impl Taken<'_> {
    /// Returns the number of dirty pages.
    pub(crate) fn dirty_pages(&self) -> u32 {
        u32::try_from(self.pages.iter().filter(|(_, page)| page.dirty() != 0).count()).unwrap_or(u32::MAX)
    }

    /// Returns the runs of dirty blocks within the file.
    pub(crate) fn segments(&self, units: Units) -> Segments {
        let mut segments = Segments::new();
        let end = units.blocks(self.size);
        for (index, page) in &self.pages {
            for (block, mask) in units.of_page(*index) {
                if page.dirty() & mask == 0 || block >= end {
                    continue;
                }
                match segments.last_mut() {
                    Some(last) if last.end == block => last.end += 1,
                    _ => segments.push(block..block + 1),
                }
            }
        }
        segments
    }

    /// Returns where the contents of byte `offset` of the file are in the batch's [`Contents`].
    pub(crate) fn position(&self, offset: u64) -> usize {
        self.copy + usize::try_from(offset - byte_of(self.first)).unwrap_or(usize::MAX)
    }

    /// Ends the write-back of all pages: they are clean, unless they were changed meanwhile.
    pub(crate) fn clean(&mut self) {
        self.pages.drain(..).for_each(|(_, page)| page.finish(true));
    }
}

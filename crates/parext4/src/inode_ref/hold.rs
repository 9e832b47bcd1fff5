//! A held range of a file, as proof for functions that rely on it.

use std::marker::PhantomData;
use std::ops::Deref;

use rangelock::{ByteRange, Guard, Mode, RangeLock};

use super::InodeRef;
use crate::engine::Engine;
use crate::inode::Inode;
use crate::page_cache::PageRange;
use crate::policy::Policy;

/// A held range of one file. Functions that rely on it borrow it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Hold<L: Deref<Target = RangeLock>> {
    /// `None` when the range is released, as the last step or, in models, by a planted fault.
    guard: Option<Guard<L>>,
}

impl<L: Deref<Target = RangeLock>> Hold<L> {
    #[inline]
    pub(crate) fn new(guard: Guard<L>) -> Self {
        Self { guard: Some(guard) }
    }

    /// Returns the range and the mode in which it was granted.
    #[inline]
    pub(crate) fn granted(&self) -> (ByteRange, Mode) {
        self.guard.as_ref().map_or((ByteRange::ALL, Mode::Exclusive), |guard| (guard.range(), guard.mode()))
    }

    /// Releases the range.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.guard = None;
    }

    /// Asserts in debug builds that it covers `[offset, end)` of the file of `node` in `mode` or
    /// exclusively. Under the policies that lock whole files, one byte stands for the file.
    #[inline]
    pub(crate) fn assert_covers(&self, node: &InodeRef, offset: u64, end: u64, mode: Mode) {
        self.check(&node.engine, &node.inode, (offset, end), mode);
    }

    /// Returns the proof that it covers `pages` of a file in `mode` or exclusively, which it
    /// asserts in debug builds.
    #[inline]
    pub(crate) fn pages(
        &self,
        engine: &Engine,
        inode: &Inode,
        pages: PageRange,
        mode: Mode,
    ) -> HeldPages<'_> {
        let bytes = engine.page_size().bytes_of(pages);
        self.check(engine, inode, (bytes.start, bytes.end), mode);
        HeldPages { pages, hold: PhantomData }
    }

    #[inline]
    fn check(&self, engine: &Engine, inode: &Inode, (offset, end): (u64, u64), mode: Mode) {
        let Some(guard) = &self.guard else { return };
        debug_assert!(guard.is_of(&inode.ranges), "the range of another file is held");
        let covers = offset >= end || guard.range().contains(&ByteRange::new(offset, end));
        debug_assert!(
            engine.policy() != Policy::Range || covers && (mode == Mode::Shared || guard.mode() == mode),
            "{:?} {:?} is held, not {mode:?} [{offset}, {end})",
            guard.mode(),
            guard.range(),
        );
    }
}

/// Pages of one file whose bytes a [`Hold`] covers. Functions that write back or drop pages get
/// them in this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldPages<'h> {
    pages: PageRange,
    hold: PhantomData<&'h ()>,
}

impl HeldPages<'_> {
    /// All pages, without a hold: what a planted fault uses in place of pages that are held.
    pub(crate) const UNHELD: Self = Self { pages: PageRange::ALL, hold: PhantomData };

    /// Returns the range of the pages.
    #[inline]
    pub(crate) fn range(self) -> PageRange {
        self.pages
    }

    /// Returns the pages of `part`, all of which are among these.
    #[inline]
    pub(crate) fn part(self, part: PageRange) -> Self {
        debug_assert!(self.pages.covers(part), "pages {} are held, not {part}", self.pages);
        Self { pages: part, hold: PhantomData }
    }
}

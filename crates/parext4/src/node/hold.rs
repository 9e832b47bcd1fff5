//! A held range of a file, as proof for functions that rely on it.

use std::ops::Deref;

use rangelock::{ByteRange, Guard, Mode, RangeLock};

use super::Node;
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

    /// Asserts in debug builds that it covers `[offset, end)` of the file of `node` in `mode` or exclusively. Under the
    /// policies that lock whole files, one byte stands for the file.
    #[inline]
    pub(crate) fn assert_covers(&self, node: &Node, offset: u64, end: u64, mode: Mode) {
        let Some(guard) = &self.guard else { return };
        debug_assert!(guard.is_of(&node.inode.ranges), "the range of another file is held");
        let covers = offset >= end || guard.range().contains(&ByteRange::new(offset, end));
        debug_assert!(
            node.engine.policy != Policy::Range || covers && (mode == Mode::Shared || guard.mode() == mode),
            "{:?} {:?} is held, not {mode:?} [{offset}, {end})",
            guard.mode(),
            guard.range(),
        );
    }
}

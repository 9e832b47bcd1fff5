//! Which bytes of a file are in the page cache.

use std::ops::Range;

use rangelock::ByteRange;

use crate::file::DirectFile;

impl DirectFile {
    /// Implements
    /// [`ServerDirectFile::has_cached_pages`](crate::server::ServerDirectFile::has_cached_pages).
    #[must_use]
    pub(crate) fn has_cached_pages(&self, range: Range<u64>) -> bool {
        let bytes = ByteRange::new(range.start, range.end.max(range.start.saturating_add(1)));
        let pages = self.engine().page_size().touching(bytes);
        self.inode()
            .cached()
            .is_some_and(|cached| pages.pages().any(|index| cached.pages.peek(index).is_some()))
    }
}

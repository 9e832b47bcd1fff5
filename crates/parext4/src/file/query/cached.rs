//! Which bytes of a file are in the page cache.

use std::ops::Range;

use rangelock::ByteRange;

use crate::file::DirectFile;

impl DirectFile {
    /// Returns true if the volume's page cache now has any page of the bytes of `range`, or of the byte at its start. A caller that holds
    /// no range can use the answer only to choose between the two ways to read, which are coherent.
    #[must_use]
    pub fn has_cached_pages(&self, range: Range<u64>) -> bool {
        let bytes = ByteRange::new(range.start, range.end.max(range.start.saturating_add(1)));
        let pages = self.engine().page_size().touching(bytes);
        self.inode()
            .cached()
            .is_some_and(|cached| pages.pages().any(|index| cached.pages.peek(index).is_some()))
    }
}

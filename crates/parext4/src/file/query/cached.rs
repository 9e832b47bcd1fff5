//! Which bytes of a file are in the page cache.

use rangelock::ByteRange;

use crate::file::DirectFile;

impl DirectFile {
    /// Returns true if the volume's page cache now has any page of the `len` bytes at `offset`. A caller that holds
    /// no range can use the answer only to choose between the two ways to read, which are coherent.
    #[must_use]
    pub fn has_cached_pages(&self, offset: u64, len: u64) -> bool {
        let bytes = ByteRange::new(offset, offset.saturating_add(len.max(1)));
        let pages = self.engine().page_size().touching(bytes);
        self.inode()
            .cached()
            .is_some_and(|cached| pages.pages().any(|index| cached.pages.peek(index).is_some()))
    }
}

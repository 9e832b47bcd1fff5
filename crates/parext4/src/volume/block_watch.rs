//! Watching the number of blocks of files.

use parext4_format::InodeNo;

use super::Volume;

impl Volume {
    /// Has `watcher` called with each file whose number of blocks ([`Metadata::sectors`]) has changed
    /// without a call that changes the file: write-back has allocated blocks for data or for the
    /// extent tree, or blocks that were preallocated for a writer were freed. A server that passes
    /// metadata on to a cache needs it. Only the first watcher of a volume is called.
    ///
    /// The call comes after the change, in any thread, also in one that holds locks of the volume. It
    /// must not block, and must not use the volume.
    ///
    /// [`Metadata::sectors`]: crate::Metadata::sectors
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use std::sync::mpsc::channel;
    ///
    /// let (sender, changed) = channel();
    /// volume.watch_blocks(move |ino| sender.send(ino).unwrap_or_default());
    /// let file = volume.create_file("/file")?;
    /// file.write_all_at(b"data", 0)?;
    /// file.sync_all()?;
    /// assert_eq!(changed.recv().ok(), Some(volume.metadata("/file")?.ino));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    pub fn watch_blocks(&self, watcher: impl Fn(InodeNo) + Send + Sync + 'static) {
        self.engine.block_watch.set(Box::new(watcher));
    }
}

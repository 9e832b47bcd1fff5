//! What a file system server needs besides the API for programs, as traits: a server for FUSE, or
//! for a network protocol.
//!
//! A server acts for users whose rights and pages it keeps itself. It updates times when data
//! enters a cache above the engine, checks flags when a file is opened, and must not block a thread
//! that serves several users. A program that opens a volume for itself needs nothing of this
//! module. Not responsible for any of the operations: each trait only names what the modules below
//! have.
//!
//! ```
//! # let volume = testkit::volume::scratch();
//! use parext4::server::{ServerInode, ServerVolume};
//!
//! volume.write("/file", "text")?;
//! volume.resolve("/file")?.touch_modified()?;
//! assert_eq!(volume.open_resources().operations, 0);
//! # Ok::<(), parext4::Error>(())
//! ```

use std::ops::Range;
use std::path::Path;

use parext4_format::InodeNo;

use crate::error::{Error, Result};
pub use crate::file::PageFault;
use crate::file::{DirectFile, File};
use crate::inode_ref::InodeRef;
pub use crate::map_update::SpaceWait;
use crate::namespace::{NewInode, RenameMode};
pub use crate::volume::OpenResources;
use crate::volume::Volume;

/// Keeps other crates from implementing the traits, which may get further methods.
mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::Volume {}
    impl Sealed for crate::InodeRef {}
    impl Sealed for crate::File {}
    impl Sealed for crate::DirectFile {}
}

/// What a server needs of a [`Volume`].
pub trait ServerVolume: sealed::Sealed {
    /// Stops the volume, as a failed write does. The volume then refuses all changes, and never
    /// makes earlier changes durable that are not durable yet. Reads continue. Does nothing if the
    /// volume has stopped already. Does not block.
    fn stop(&self, why: &Error);

    /// Logs and records an error that an operation on this volume returned, unless it is recorded
    /// already. Ignores errors that do not concern the volume itself.
    fn note_error(&self, error: &Error);

    /// Returns what operations hold at the moment. Counts one after the other: it is exact while no
    /// operation is in progress.
    #[must_use]
    fn open_resources(&self) -> OpenResources;

    /// Has `watcher` called with each file whose number of blocks ([`Metadata::sectors`]) has
    /// changed without a call that changes the file: write-back has allocated blocks for data or
    /// for the extent tree, or blocks that were preallocated for a writer were freed. A server that
    /// passes metadata on to a cache needs it. Only the first watcher of a volume is called.
    ///
    /// The call comes after the change, in any thread, also in one that holds locks of the volume.
    /// It must not block, and must not use the volume.
    ///
    /// [`Metadata::sectors`]: crate::Metadata::sectors
    ///
    /// ```
    /// # use parext4::server::ServerVolume;
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
    fn watch_blocks(&self, watcher: impl Fn(InodeNo) + Send + Sync + 'static);

    /// Returns the inode that has the number `ino` now, of any generation, for callers that compare
    /// the generation themselves. Does not find an inode without a name, even while a [`InodeRef`]
    /// keeps it.
    ///
    /// ```
    /// # use parext4::server::ServerVolume;
    /// # let volume = testkit::volume::scratch();
    /// let ino = volume.metadata("/lost+found")?.ino;
    /// assert_eq!(volume.inode_by_number(ino)?.ino(), ino);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Volume::inode_ref`].
    fn inode_by_number(&self, ino: InodeNo) -> Result<InodeRef>;

    /// Records in the superblock the directory on which the volume is mounted; `dumpe2fs` shows it.
    /// The first 64 bytes of the path are kept. Durable with the next commit.
    ///
    /// ```
    /// # use parext4::server::ServerVolume;
    /// # let volume = testkit::volume::scratch();
    /// volume.set_last_mounted("/mnt/data".as_ref())?;
    /// assert_eq!(volume.last_mounted(), b"/mnt/data");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the volume cannot be changed.
    fn set_last_mounted(&self, dir: &Path) -> Result<()>;
}

impl ServerVolume for Volume {
    fn stop(&self, why: &Error) {
        Volume::stop(self, why);
    }

    fn note_error(&self, error: &Error) {
        Volume::note_error(self, error);
    }

    fn open_resources(&self) -> OpenResources {
        Volume::open_resources(self)
    }

    fn watch_blocks(&self, watcher: impl Fn(InodeNo) + Send + Sync + 'static) {
        Volume::watch_blocks(self, watcher);
    }

    fn inode_by_number(&self, ino: InodeNo) -> Result<InodeRef> {
        Volume::inode_by_number(self, ino)
    }

    fn set_last_mounted(&self, dir: &Path) -> Result<()> {
        Volume::set_last_mounted(self, dir)
    }
}

/// What a server needs of an [`InodeRef`].
pub trait ServerInode: sealed::Sealed {
    /// Returns this reference as one that its owner drops soon, without an action of a user, once
    /// no other reference keeps an inode without names. So an operation that finds no space waits
    /// for the deletion of the inode, for at most 10 seconds. Clones of the reference are ordinary
    /// ones.
    ///
    /// A file system server keeps such references for a kernel that forgets a removed file when no
    /// program uses it any more.
    ///
    /// ```
    /// # use parext4::server::ServerInode;
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/file", "text")?;
    /// let node = volume.resolve("/file")?.departing();
    /// volume.remove_file("/file")?;
    /// assert_eq!(node.metadata().links, 0);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    fn departing(self) -> Self;

    /// Adds the extra fields that new inodes have to an inode that is about to change and has no
    /// room for them. Tries it once after the inode was loaded. Without room for all, adds the
    /// fields that all inodes of the volume shall have (`s_min_extra_isize`), or none. An error is
    /// logged only, as in the kernel: an inode without the fields can be used all the same. May
    /// block on the device.
    fn make_room_for_fields(&self);

    /// Clears the set-ID bits that `which` returns for the permissions, as a change of the contents
    /// does. Reads and changes the permissions atomically, so it undoes no concurrent change. The
    /// caller decides which bits to clear, and when.
    ///
    /// ```
    /// # use parext4::server::ServerInode;
    /// # let volume = testkit::volume::scratch();
    /// use parext4::SetAttributes;
    ///
    /// volume.write("/program", "text")?;
    /// let node = volume.resolve("/program")?;
    /// node.set_attributes(&SetAttributes::new().permissions(0o4755))?;
    /// node.clear_set_ids(|permissions| permissions & 0o6000)?;
    /// assert_eq!(node.metadata().permissions, 0o755);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the inode is immutable, or append-only with a bit to clear: the
    /// kernel's ext4 refuses an append that would have to clear one. An error if the volume may not
    /// be changed.
    fn clear_set_ids(&self, which: impl Fn(u16) -> u16) -> Result<()>;

    /// Sets the times of modification and change to now, as a write does. They become durable with
    /// the next commit.
    ///
    /// # Errors
    /// Returns an error if the volume may not be changed.
    fn touch_modified(&self) -> Result<()>;

    /// Removes the file capabilities, as a change of the contents does. Works also on an
    /// append-only file, whose attributes cannot be changed otherwise. The caller decides when the
    /// capabilities must be removed. May block on the device.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the inode is immutable; corruption; an error if the volume
    /// cannot be changed.
    fn remove_capabilities(&self) -> Result<()>;

    /// Sets the time of last access to now. The caller decides whether a read does that.
    ///
    /// ```
    /// # use parext4::server::ServerInode;
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// let node = volume.resolve("/a")?;
    /// node.touch_accessed()?;
    /// assert!(node.metadata().atime >= node.metadata().crtime);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the volume may not be changed.
    fn touch_accessed(&self) -> Result<()>;

    /// Like [`InodeRef::rename`], and atomically puts a *whiteout* in the place of the old
    /// name: a character device 0:0 without permissions, with which overlay file systems record a
    /// removed name. `owner` is the whiteout's owner.
    ///
    /// # Errors
    /// As [`InodeRef::rename`]; [`Error::Invalid`] for an exchange, [`Error::NoInodes`].
    fn rename_with_whiteout(
        &self,
        name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        mode: RenameMode,
        owner: &NewInode,
    ) -> Result<()>;
}

impl ServerInode for InodeRef {
    fn departing(self) -> Self {
        InodeRef::departing(self)
    }

    fn make_room_for_fields(&self) {
        InodeRef::make_room_for_fields(self);
    }

    fn clear_set_ids(&self, which: impl Fn(u16) -> u16) -> Result<()> {
        InodeRef::clear_set_ids(self, which)
    }

    fn touch_modified(&self) -> Result<()> {
        InodeRef::touch_modified(self)
    }

    fn remove_capabilities(&self) -> Result<()> {
        InodeRef::remove_capabilities(self)
    }

    fn touch_accessed(&self) -> Result<()> {
        InodeRef::touch_accessed(self)
    }

    fn rename_with_whiteout(
        &self,
        name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        mode: RenameMode,
        owner: &NewInode,
    ) -> Result<()> {
        InodeRef::rename_with_whiteout(self, name, new_dir, new_name, mode, owner)
    }
}

/// What a server needs of a [`DirectFile`].
pub trait ServerDirectFile: sealed::Sealed {
    /// Returns the same file for writes that do not update its times. It serves a page cache above
    /// this file, whose owner updates the times when data enters that cache. Changes other than
    /// writes still update the times.
    #[must_use]
    fn keeping_times(&self) -> Self;

    /// Returns the same file for a caller that checks the append-only flag when it opens files, as
    /// open(2) does. Writes through the returned file succeed after that flag is set. An immutable
    /// file refuses them.
    #[must_use]
    fn checked_when_opened(&self) -> Self;

    /// Returns true if a write of `len` bytes may have to wait for space that other operations
    /// return, because the volume is nearly full. A thread that serves several users should then
    /// leave the write to another one.
    #[must_use]
    fn may_wait_for_space(&self, len: usize) -> bool;

    /// Returns true if the volume's page cache now has any page of the bytes of `range`, or of the
    /// byte at its start. A caller that holds no range can use the answer only to choose between
    /// the two ways to read, which are coherent.
    #[must_use]
    fn has_cached_pages(&self, range: Range<u64>) -> bool;
}

impl ServerDirectFile for DirectFile {
    fn keeping_times(&self) -> Self {
        DirectFile::keeping_times(self)
    }

    fn checked_when_opened(&self) -> Self {
        DirectFile::checked_when_opened(self)
    }

    fn may_wait_for_space(&self, len: usize) -> bool {
        DirectFile::may_wait_for_space(self, len)
    }

    fn has_cached_pages(&self, range: Range<u64>) -> bool {
        DirectFile::has_cached_pages(self, range)
    }
}

/// What a server needs of a [`File`].
pub trait ServerFile: sealed::Sealed {
    /// Like [`File::write_all_at`], for one of several writes that wait for space together: they
    /// wait no longer than one write, and after one has waited in vain, the others do not wait.
    ///
    /// ```
    /// # use parext4::server::ServerFile;
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// let mut wait = parext4::server::SpaceWait::new();
    /// file.write_all_at_waiting(b"one", 0, &mut wait)?;
    /// file.write_all_at_waiting(b"two", 3, &mut wait)?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`File::write_all_at`].
    fn write_all_at_waiting(&self, data: &[u8], offset: u64, wait: &mut SpaceWait) -> Result<()>;

    /// Like [`File::append`], but if space runs out after a first part of `data` has become
    /// visible, succeeds with that part. Returns the number of bytes that were appended. Appends
    /// with one `wait` wait for space together.
    ///
    /// ```
    /// # use parext4::server::ServerFile;
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// let mut wait = parext4::server::SpaceWait::new();
    /// assert_eq!(file.append_partial(b"text", &mut wait)?, 4);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`File::write_all_at`]. After [`Error::NoSpace`] and [`Error::QuotaExceeded`]
    /// the file has nothing of `data`.
    fn append_partial(&self, data: &[u8], wait: &mut SpaceWait) -> Result<usize>;

    /// Reads the page at byte `offset` into the cache, as a page fault of a mapping does. For a
    /// store, also marks it dirty and reserves its space. Holds only that page. May block on the
    /// device, and for a store on space.
    ///
    /// ```
    /// # use parext4::server::ServerFile;
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use parext4::server::PageFault;
    ///
    /// file.write_all_at(b"text", 0)?;
    /// file.fault(0, PageFault::Store)?;
    /// assert!(file.fault(4, PageFault::Load).is_err(), "past the end of the file");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] past the end of the file, where a mapping would receive a signal; the
    /// errors of [`File::write_all_at`] and [`File::read_at`].
    fn fault(&self, offset: u64, access: PageFault) -> Result<()>;
}

impl ServerFile for File {
    fn write_all_at_waiting(&self, data: &[u8], offset: u64, wait: &mut SpaceWait) -> Result<()> {
        File::write_all_at_waiting(self, data, offset, wait)
    }

    fn append_partial(&self, data: &[u8], wait: &mut SpaceWait) -> Result<usize> {
        File::append_partial(self, data, wait)
    }

    fn fault(&self, offset: u64, access: PageFault) -> Result<()> {
        File::fault(self, offset, access)
    }
}

//! Reading and setting attributes.

use parext4_format::InodeNo;
use parext4_format::inode::{FileType, InodeFlags, Timestamp};

use super::create::{PERMISSIONS, S_ISGID};
use super::set_attributes::SetAttributes;
use crate::error::Result;
use crate::inode::{Cached, FIXED};
use crate::inode_ref::InodeRef;
use crate::xattr::XattrChange;

/// Set-user-ID.
const S_ISUID: u16 = 0o4000;
/// Execution by the group. Without it, set-group-ID has another meaning.
const S_IXGRP: u16 = 0o0010;

/// Minimum `i_extra_isize` with which all times have their extra bits.
const EXTRA_TIMES: u16 = 16;
/// Smallest `i_extra_isize` with the time of creation.
const EXTRA_CRTIME: u16 = 20;

/// The attributes of an inode at one moment.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// volume.write("/a", "text")?;
/// let metadata = volume.metadata("/a")?;
/// assert_eq!((metadata.size, metadata.permissions), (4, 0o644));
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The inode number.
    pub ino: InodeNo,
    /// What kind of inode this is.
    pub file_type: FileType,
    /// The permission bits, set-ID and sticky bits included.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The size in bytes.
    pub size: u64,
    /// The space in use, in units of 512 bytes.
    pub sectors: u64,
    /// False while the file has data to write back, which may change `sectors`.
    pub sectors_are_final: bool,
    /// The number of names; of a directory two and its subdirectories, or 1 if there are too many
    /// to count.
    pub links: u16,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// Tells apart the inodes that have had this number.
    pub generation: u32,
    /// Flags, as `lsattr` shows them.
    pub flags: InodeFlags,
    /// The device number (major, minor) of a device file.
    pub rdev: Option<(u32, u32)>,
}

impl InodeRef {
    /// Returns the space besides the inode's blocks, in units of 512 bytes: what dirty pages have
    /// reserved, or the size of contents in the inode.
    fn further_sectors(&self) -> u64 {
        if self.file_type() == FileType::Regular && self.inode.flags().contains(InodeFlags::INLINE_DATA) {
            // As the kernel does, so that programs do not take the contents for a hole.
            return self.inode.size().div_ceil(512);
        }
        let blocks = self.inode.cached().map_or(0, |cached| cached.delayed());
        blocks * (self.engine.block_size() / 512)
    }

    /// Returns the current attributes.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let metadata = volume.root()?.metadata();
    /// assert_eq!((metadata.ino.get(), metadata.uid), (2, 0));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        // Before the number of sectors, which the write-back changes before it ends.
        let is_written = self.inode.cached().is_none_or(Cached::is_written);
        let core = self.inode.core();
        let (mtime, ctime) = self.inode.times(&core);
        // A pending time may have nanoseconds for which the inode on the device has no room.
        // Returns the time as it will be read later.
        let has_extra = core.extra_isize >= EXTRA_TIMES;
        let held = |time: Timestamp| time.rounded_to_disk(has_extra);
        let is_device = matches!(self.file_type(), FileType::CharDevice | FileType::BlockDevice);
        Metadata {
            ino: self.ino(),
            file_type: self.file_type(),
            permissions: core.mode & PERMISSIONS,
            uid: core.uid,
            gid: core.gid,
            size: self.shown_size(),
            sectors: self.inode.sectors() + self.further_sectors(),
            sectors_are_final: is_written,
            links: core.links,
            atime: held(core.atime),
            mtime: held(mtime),
            ctime: held(ctime),
            crtime: if core.extra_isize >= EXTRA_CRTIME { held(core.crtime) } else { Timestamp::default() },
            generation: core.generation,
            flags: core.flags,
            rdev: is_device.then(|| core.rdev()),
        }
    }

    /// Sets the times of last access, modification and change to now, as utimensat(2) does without
    /// times. Also permitted for an append-only file, whose times cannot be set otherwise.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// volume.resolve("/a")?.touch()?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) if the inode is immutable; an error if
    /// the volume may not be changed.
    pub fn touch(&self) -> Result<()> {
        self.inode.check_flags(InodeFlags::IMMUTABLE)?;
        let now = self.inode.now();
        // One credit, for the inode's block.
        self.engine.transact(1, |handle| {
            self.inode.join(handle);
            self.set_core(&SetAttributes::new().atime(now).mtime(now), || ());
            Ok(())
        })
    }

    /// Sets attributes atomically. As on Linux, a new owner or group clears the set-ID bits of a
    /// file unless its permissions are set too, and new permissions change the access control list
    /// if there is one.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::SetAttributes;
    ///
    /// let dir = volume.create_dir("/dir", 0o755)?;
    /// dir.set_attributes(&SetAttributes::new().permissions(0o700).uid(1000))?;
    /// let metadata = dir.metadata();
    /// assert_eq!((metadata.permissions, metadata.uid), (0o700, 1000));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) if the inode is immutable, or
    /// append-only and more is set than the time of change; corruption.
    pub fn set_attributes(&self, set: &SetAttributes) -> Result<()> {
        let only_dates = set.ctime(None) == SetAttributes::new();
        self.inode.check_flags(if only_dates { InodeFlags::IMMUTABLE } else { FIXED })?;
        self.make_room_for_fields();
        // Dropped after the lock: it may delete the inode of a value.
        let xattrs;
        let changes_owner = set.uid.is_some() || set.gid.is_some();
        let needs_lock = set.permissions.is_some() || changes_owner && self.owns_values();
        let locked = needs_lock.then(|| self.lock_xattrs());
        xattrs = match (&locked, set.permissions) {
            (Some(locked), Some(permissions)) => locked.change_for_permissions(permissions)?,
            _ => XattrChange::default(),
        };
        let owner = self.prepare_owner([set.uid, set.gid, None], locked.as_ref(), xattrs.added_values())?;
        self.engine.with_space(|| {
            self.engine.transact(xattrs.credits(), |handle| {
                xattrs.apply(&self.engine, handle, &self.inode)?;
                self.inode.join(handle);
                self.set_core(set, || owner.apply(handle, self));
                Ok(())
            })
        })
    }

    fn set_core(&self, set: &SetAttributes, under_lock: impl FnOnce()) {
        let mut core = self.inode.core_with_times();
        under_lock();
        let mut permissions = set.permissions.unwrap_or(core.mode) & PERMISSIONS;
        let changes_owner = set.uid.is_some() || set.gid.is_some();
        if set.permissions.is_none() && changes_owner && !self.inode.is_dir() {
            permissions &= !S_ISUID;
            if permissions & S_IXGRP != 0 {
                permissions &= !S_ISGID;
            }
        }
        core.mode = core.mode & !PERMISSIONS | permissions;
        core.uid = set.uid.unwrap_or(core.uid);
        core.gid = set.gid.unwrap_or(core.gid);
        let has_extra = core.extra_isize >= EXTRA_TIMES;
        let held = |time: Timestamp| time.rounded_to_disk(has_extra);
        core.atime = set.atime.map_or(core.atime, held);
        core.mtime = set.mtime.map_or(core.mtime, held);
        core.ctime = set.ctime.map_or_else(|| self.inode.now(), held);
    }

    /// Implements [`ServerInode::clear_set_ids`](crate::server::ServerInode::clear_set_ids).
    pub(crate) fn clear_set_ids(&self, which: impl Fn(u16) -> u16) -> Result<()> {
        self.inode.check_flags(InodeFlags::IMMUTABLE)?;
        let due = |mode: u16| which(mode & PERMISSIONS) & (S_ISUID | S_ISGID) & mode;
        if due(self.inode.core().mode) == 0 {
            return Ok(());
        }
        self.inode.check_flags(InodeFlags::APPEND)?;
        // One credit, for the inode's block.
        self.engine.transact(1, |handle| {
            self.inode.join(handle);
            let mut core = self.inode.core_with_times();
            core.mode &= !due(core.mode);
            core.ctime = self.inode.now();
            Ok(())
        })
    }

    /// Implements [`ServerInode::touch_modified`](crate::server::ServerInode::touch_modified).
    pub(crate) fn touch_modified(&self) -> Result<()> {
        self.engine.check_writable()?;
        let _in_flight = self.engine.in_flight().enter()?;
        self.engine.touch_lazily(&self.inode);
        Ok(())
    }

    /// Implements [`ServerInode::touch_accessed`](crate::server::ServerInode::touch_accessed).
    pub(crate) fn touch_accessed(&self) -> Result<()> {
        // One credit, for the inode's block.
        self.engine.transact(1, |handle| {
            self.inode.join(handle);
            let now = self.inode.now();
            self.inode.core().atime = now;
            Ok(())
        })
    }
}

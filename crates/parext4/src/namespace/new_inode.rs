//! The attributes of an inode to create, and the kinds of special files.

/// The attributes of an inode to create.
///
/// ```
/// use parext4::NewInode;
///
/// let new = NewInode::new().permissions(0o640).uid(1000).gid(1000);
/// assert_eq!((new.permissions, new.umask), (0o640, 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewInode {
    /// The permission bits, at most `0o7777`. `0o644` by default.
    pub permissions: u16,
    /// Bits to clear in the permissions, unless the directory has a default access control list,
    /// which replaces the umask.
    pub umask: u16,
    /// The owner. Root by default.
    pub uid: u32,
    /// The group. Root's by default. If the parent directory has the set-group-ID bit, the new
    /// inode gets the parent's group instead.
    pub gid: u32,
}

impl Default for NewInode {
    fn default() -> Self {
        Self::new()
    }
}

impl NewInode {
    /// Returns the defaults: `0o644`, owned by root, without umask.
    #[must_use]
    pub const fn new() -> Self {
        Self { permissions: 0o644, umask: 0, uid: 0, gid: 0 }
    }

    /// Sets [`permissions`](field@Self::permissions).
    #[must_use]
    pub const fn permissions(mut self, permissions: u16) -> Self {
        self.permissions = permissions;
        self
    }

    /// Sets [`umask`](field@Self::umask).
    #[must_use]
    pub const fn umask(mut self, umask: u16) -> Self {
        self.umask = umask;
        self
    }

    /// Sets [`uid`](field@Self::uid).
    #[must_use]
    pub const fn uid(mut self, uid: u32) -> Self {
        self.uid = uid;
        self
    }

    /// Sets [`gid`](field@Self::gid).
    #[must_use]
    pub const fn gid(mut self, gid: u32) -> Self {
        self.gid = gid;
        self
    }
}

/// A special file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Special {
    /// A character device.
    CharDevice {
        /// At most 12 bits.
        major: u32,
        /// At most 20 bits.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// At most 12 bits.
        major: u32,
        /// At most 20 bits.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

//! The attributes that one call sets.

use parext4_format::inode::Timestamp;

/// Attributes to set. A field that is `None` stays unchanged.
///
/// ```
/// use parext4::SetAttributes;
///
/// let set = SetAttributes::new().permissions(0o600).uid(1000);
/// assert_eq!((set.permissions, set.gid), (Some(0o600), None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetAttributes {
    /// The permission bits, `0o7777` at most.
    pub permissions: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of the contents.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode. `None`: now.
    pub ctime: Option<Timestamp>,
}

impl SetAttributes {
    /// Returns a set without attributes: it changes only the time of the last change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`permissions`](field@Self::permissions).
    #[must_use]
    pub fn permissions(mut self, permissions: impl Into<Option<u16>>) -> Self {
        self.permissions = permissions.into();
        self
    }

    /// Sets [`uid`](field@Self::uid).
    #[must_use]
    pub fn uid(mut self, uid: impl Into<Option<u32>>) -> Self {
        self.uid = uid.into();
        self
    }

    /// Sets [`gid`](field@Self::gid).
    #[must_use]
    pub fn gid(mut self, gid: impl Into<Option<u32>>) -> Self {
        self.gid = gid.into();
        self
    }

    /// Sets [`atime`](field@Self::atime).
    #[must_use]
    pub fn atime(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.atime = time.into();
        self
    }

    /// Sets [`mtime`](field@Self::mtime).
    #[must_use]
    pub fn mtime(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.mtime = time.into();
        self
    }

    /// Sets [`ctime`](field@Self::ctime).
    #[must_use]
    pub fn ctime(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.ctime = time.into();
        self
    }
}

//! The times of a file that a program sets.

use parext4_format::inode::Timestamp;

use super::SetAttributes;

/// Times to set, as [`std::fs::FileTimes`]: a time that is not given stays as it is.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// use std::time::SystemTime;
/// use parext4::FileTimes;
///
/// let file = volume.create_file("/file")?;
/// let now = SystemTime::now();
/// file.set_times(FileTimes::new().set_accessed(now).set_modified(now))?;
/// assert_eq!(SystemTime::from(file.metadata().mtime), now);
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    accessed: Option<Timestamp>,
    modified: Option<Timestamp>,
}

impl FileTimes {
    /// Returns no times: setting them changes only the time of the last change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time of the last access, a [`SystemTime`](std::time::SystemTime) or a
    /// [`Timestamp`].
    #[must_use]
    pub fn set_accessed(mut self, time: impl Into<Timestamp>) -> Self {
        self.accessed = Some(time.into());
        self
    }

    /// Sets the time of the last change of the contents, a [`SystemTime`](std::time::SystemTime) or
    /// a [`Timestamp`].
    #[must_use]
    pub fn set_modified(mut self, time: impl Into<Timestamp>) -> Self {
        self.modified = Some(time.into());
        self
    }
}

impl From<FileTimes> for SetAttributes {
    fn from(FileTimes { accessed, modified }: FileTimes) -> Self {
        Self::new().atime(accessed).mtime(modified)
    }
}

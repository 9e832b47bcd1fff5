//! The paths of listed directories, which share their common beginnings.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::sync::Arc;

/// The path of a listed directory: its name, and the path of the directory above it.
///
/// The paths of all directories of a chain together need memory for each name once. Dropping and
/// printing a path do not recurse, because the volume decides how long it is.
pub(super) struct DirPath {
    above: Option<Arc<Self>>,
    /// The directory's name. For the directory where the listing begins, the path that the caller
    /// gave.
    name: OsString,
}

impl DirPath {
    /// Returns the path of the directory where a listing begins.
    pub(super) fn top(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { above: None, name: path.into_os_string() })
    }

    /// Returns the path of the directory `name` in the directory at `above`.
    pub(super) fn below(above: &Arc<Self>, name: OsString) -> Arc<Self> {
        Arc::new(Self { above: Some(Arc::clone(above)), name })
    }

    /// Returns the directory's name.
    pub(super) fn name(&self) -> &OsString {
        &self.name
    }

    /// Returns the path as one string.
    pub(super) fn to_path(&self) -> PathBuf {
        let names: Vec<_> =
            std::iter::successors(Some(self), |path| path.above.as_deref()).map(|path| &path.name).collect();
        let mut whole = PathBuf::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        whole.extend(names.iter().rev());
        whole
    }
}

impl fmt::Debug for DirPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_path().fmt(f)
    }
}

impl Drop for DirPath {
    fn drop(&mut self) {
        // Drops one directory after the other, up to one that another path shares.
        let mut above = self.above.take();
        while let Some(mut path) = above.and_then(Arc::into_inner) {
            above = path.above.take();
        }
    }
}

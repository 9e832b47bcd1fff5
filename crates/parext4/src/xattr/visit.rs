//! All attributes of an inode in one pass, for programs that copy them.

use std::fmt;

use parext4_format::xattr::{self, Value, Xattr};

use super::XattrName;
use super::locked::LockedXattrs;
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;
use crate::sync::ReadGuard;

/// An attribute, in a call of [`InodeRef::visit_xattrs`].
pub struct XattrRef<'a> {
    node: &'a InodeRef,
    locked: &'a LockedXattrs<'a, ReadGuard<'a, ()>>,
    name: XattrName<'a>,
    xattr: &'a Xattr,
}

impl fmt::Debug for XattrRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XattrRef").field("name", &self.name).finish_non_exhaustive()
    }
}

impl XattrRef<'_> {
    /// Returns the name, with its prefix.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name.full
    }

    /// Returns the number of bytes of the value as it is stored. Does not read it. An access
    /// control list as programs pass it is longer.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        match &self.xattr.value {
            Value::Bytes(bytes) => bytes.len(),
            Value::Inode(value) => value.size as usize,
        }
    }

    /// Returns the value, as [`InodeRef::get_xattr`] does. May block on the device.
    ///
    /// # Errors
    /// [`Error::TooBig`] if the value exceeds 65536 bytes; corruption; a failed read.
    pub fn value(&self) -> Result<Vec<u8>> {
        self.node.as_program(self.name, self.locked.value_of(self.xattr)?)
    }
}

impl InodeRef {
    /// Calls `visit` with each attribute. Reads the attributes once, while
    /// [`get_xattr`](Self::get_xattr) for each name of [`list_xattr`](Self::list_xattr) would read
    /// all of them for each. May block on the device.
    ///
    /// The attributes of the inode are locked against changes until the last call has returned, so
    /// `visit` must not change the volume.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::{Error, XattrMode};
    ///
    /// root.set_xattr(b"user.origin", b"backup", XattrMode::Any)?;
    /// let mut seen = Vec::new();
    /// root.visit_xattrs(|xattr| -> Result<(), Error> {
    ///     seen.push((xattr.name().to_vec(), xattr.value()?));
    ///     Ok(())
    /// })?;
    /// assert_eq!(seen, [(b"user.origin".to_vec(), b"backup".to_vec())]);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of `visit`; [`Error::Invalid`] if the volume has an attribute of a name that no
    /// program can set; corruption; a failed read.
    pub fn visit_xattrs<E: From<Error>>(
        &self,
        mut visit: impl FnMut(&XattrRef<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.engine.in_flight().check_open()?;
        let locked = self.lock_xattrs_shared();
        let edit = locked.load()?;
        for xattr in edit.iter() {
            let Some(full) = xattr::full_name(xattr) else { continue };
            let name = XattrName::new(&full)?;
            visit(&XattrRef { node: self, locked: &locked, name, xattr })?;
        }
        Ok(())
    }
}

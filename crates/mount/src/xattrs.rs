//! Extended attributes: those of the volume, and one of the root directory by which the server tells of itself.

use std::cell::LazyCell;

use fuser::INodeNo;
use parext4::{Error, XattrMode};

use crate::caller::{CAP_SYS_ADMIN, Caller};
use crate::failure::{Failure, Outcome};
use crate::report::ATTRIBUTE;
use crate::server::Server;

/// Whether an attribute is the server's [report](crate::report).
pub(crate) fn names_report(ino: INodeNo, name: &[u8]) -> bool {
    ino == INodeNo::ROOT && name == ATTRIBUTE.as_bytes()
}

impl Server {
    pub fn xattr(&self, ino: INodeNo, name: &[u8]) -> Outcome<Vec<u8>> {
        self.node(ino)?.get_xattr(name)?.ok_or(Failure::NO_ATTRIBUTE)
    }

    /// Returns the names, each followed by a NUL. Trusted ones are listed only for a caller with `CAP_SYS_ADMIN`.
    pub fn xattr_names(&self, ino: INodeNo, caller: Caller) -> Outcome<Vec<u8>> {
        let mut list = Vec::new();
        let may_read_trusted = LazyCell::new(|| caller.has(CAP_SYS_ADMIN));
        for name in self.node(ino)?.list_xattr()? {
            // One of that name in the volume is out of reach.
            if (!name.starts_with(b"trusted.") || *may_read_trusted) && !names_report(ino, &name) {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }

    pub fn set_xattr(
        &self,
        ino: INodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
        caller: Caller,
    ) -> Outcome<()> {
        if names_report(ino, name) {
            return Err(Failure::NOT_PERMITTED);
        }
        let mode = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            0 => XattrMode::Any,
            _ => return Err(Failure::INVALID),
        };
        let node = self.node(ino)?;
        node.set_xattr(name, value, mode)?;
        match name {
            b"system.posix_acl_access" => self.drop_set_group_id(&node, caller)?,
            b"security.capability" => self.handles.note_capabilities(),
            _ => {}
        }
        Ok(())
    }

    pub fn remove_xattr(&self, ino: INodeNo, name: &[u8]) -> Outcome<()> {
        if names_report(ino, name) {
            return Err(Failure::NOT_PERMITTED);
        }
        match self.node(ino)?.remove_xattr(name) {
            // A file without an access control list has the one that its permissions say.
            Err(Error::NoAttribute(_)) if name.starts_with(b"system.posix_acl_") => Ok(()),
            result => Ok(result?),
        }
    }
}

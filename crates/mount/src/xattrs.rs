//! Extended attributes: those of the volume, and one of the root directory by which the server tells of itself.

use fuser::INodeNo;
use parext4::XattrMode;

use crate::failure::{Failure, Outcome};
use crate::report::ATTRIBUTE;
use crate::server::{Caller, Server};

/// Whether an attribute is the server's [report](crate::report).
pub(crate) fn names_report(ino: INodeNo, name: &[u8]) -> bool {
    ino == INodeNo::ROOT && name == ATTRIBUTE.as_bytes()
}

impl Server {
    pub fn xattr(&self, ino: INodeNo, name: &[u8]) -> Outcome<Vec<u8>> {
        self.node(ino)?.get_xattr(name)?.ok_or(Failure::NO_ATTRIBUTE)
    }

    /// The names, each with a NUL behind it. Those that only root may read are for root only.
    pub fn xattr_names(&self, ino: INodeNo, caller: Caller) -> Outcome<Vec<u8>> {
        let mut list = Vec::new();
        for name in self.node(ino)?.list_xattr()? {
            // One of that name in the volume is out of reach.
            if (caller.is_root() || !name.starts_with(b"trusted.")) && !names_report(ino, &name) {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }

    pub fn set_xattr(&self, ino: INodeNo, name: &[u8], value: &[u8], flags: i32) -> Outcome<()> {
        if names_report(ino, name) {
            return Err(Failure::NOT_PERMITTED);
        }
        let mode = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            0 => XattrMode::Any,
            _ => return Err(Failure::INVALID),
        };
        Ok(self.node(ino)?.set_xattr(name, value, mode)?)
    }

    pub fn remove_xattr(&self, ino: INodeNo, name: &[u8]) -> Outcome<()> {
        if names_report(ino, name) {
            return Err(Failure::NOT_PERMITTED);
        }
        Ok(self.node(ino)?.remove_xattr(name)?)
    }
}

//! Extended attributes: the volume's own, and the server's report, which is an attribute of the
//! root directory.

use std::cell::LazyCell;

use fuser::INodeNo;
use parext4::{Error, InodeRef, XattrMode};

use super::Server;
use crate::protocol::{CAP_SYS_ADMIN, Caller, Failure, Outcome};
use crate::report::{ATTRIBUTE, SYNC_ATTRIBUTE};
use crate::switch;

/// The attribute that contains the access control list of an inode.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Returns true if an attribute is the server's [report](crate::report).
pub(crate) fn is_report(ino: INodeNo, name: &[u8]) -> bool {
    ino == INodeNo::ROOT && name == ATTRIBUTE.as_bytes()
}

/// Returns true if a read of an attribute [makes the volume writable](crate::switch).
pub(crate) fn is_switch(ino: INodeNo, name: &[u8]) -> bool {
    ino == INodeNo::ROOT && name == switch::ATTRIBUTE.as_bytes()
}

/// Returns true if the server itself provides an attribute. The volume's attributes of these names
/// are hidden.
fn is_own(ino: INodeNo, name: &[u8]) -> bool {
    is_report(ino, name) || is_switch(ino, name) || name == SYNC_ATTRIBUTE.as_bytes()
}

/// Returns true if reading an attribute makes the server sync the volume. For other callers the
/// name is that of an ordinary attribute.
pub(crate) fn is_sync(name: &[u8], caller: Caller) -> bool {
    name == SYNC_ATTRIBUTE.as_bytes() && caller.administers()
}

impl Server {
    /// Returns the value of an attribute.
    pub fn xattr(&self, ino: INodeNo, name: &[u8]) -> Outcome<Vec<u8>> {
        self.inode_ref(ino)?.get_xattr(name)?.ok_or(Failure::NO_ATTRIBUTE)
    }

    /// Returns the names, each followed by a NUL. Trusted attributes are listed only for a caller
    /// with `CAP_SYS_ADMIN`.
    pub fn xattr_names(&self, ino: INodeNo, caller: Caller) -> Outcome<Vec<u8>> {
        let mut list = Vec::new();
        let may_read_trusted = LazyCell::new(|| caller.has(CAP_SYS_ADMIN));
        for name in self.inode_ref(ino)?.list_xattr()? {
            if (!name.starts_with(b"trusted.") || *may_read_trusted) && !is_own(ino, &name) {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }

    /// Sets an attribute.
    pub fn set_xattr(
        &self,
        ino: INodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
        caller: Caller,
    ) -> Outcome<()> {
        if is_own(ino, name) {
            return Err(Failure::NOT_PERMITTED);
        }
        let mode = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            0 => XattrMode::Any,
            _ => return Err(Failure::INVALID),
        };
        let node = self.inode_ref_for(ino, caller)?;
        self.before_change_of(name, &node)?;
        if name == ACCESS_LIST {
            // This comes before the list lets more users execute the file. If the list is then
            // refused, the bit stays cleared.
            self.drop_set_group_id(&node, caller)?;
        }
        node.set_xattr(name, value, mode)?;
        if name == b"security.capability" {
            self.open_files.note_capabilities_set();
        }
        self.after_change(&node)
    }

    /// Removes rights before a change of an attribute: an access control list can make a file
    /// executable for more users, as chmod(2) can.
    fn before_change_of(&self, name: &[u8], node: &InodeRef) -> Outcome<()> {
        if name == ACCESS_LIST { self.drop_hidden_set_ids(node) } else { Ok(()) }
    }

    /// Removes an attribute.
    pub fn remove_xattr(&self, ino: INodeNo, name: &[u8], caller: Caller) -> Outcome<()> {
        if is_own(ino, name) {
            return Err(Failure::NOT_PERMITTED);
        }
        let node = self.inode_ref_for(ino, caller)?;
        self.before_change_of(name, &node)?;
        match node.remove_xattr(name) {
            // A file without an access control list has the list that its permissions imply, so
            // removing it succeeds.
            Err(Error::NoAttribute(_)) if name.starts_with(b"system.posix_acl_") => {}
            result => result?,
        }
        self.after_change(&node)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, IoSlice, IoSliceMut};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use parext4::device::Device;
    use parext4::{MemDevice, Volume, VolumeOptions};
    use testkit::volume::Shape;

    use super::*;
    use crate::options::MountOptions;

    /// A device that can fail all reads as Linux fails a direct read of a sector that a disk cannot
    /// read.
    #[derive(Debug)]
    struct UnreadableDevice {
        inner: MemDevice,
        fails: AtomicBool,
    }

    impl Device for UnreadableDevice {
        fn size(&self) -> u64 {
            self.inner.size()
        }

        fn sector_size(&self) -> u32 {
            self.inner.sector_size()
        }

        fn read_only(&self) -> bool {
            false
        }

        fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
            if self.fails.load(Ordering::Relaxed) {
                return Err(io::Error::from_raw_os_error(libc::ENODATA));
            }
            self.inner.read_at(offset, bufs)
        }

        fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
            self.inner.write_at(offset, bufs)
        }

        fn flush(&self) -> io::Result<()> {
            self.inner.flush()
        }

        fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
            self.inner.discard(offset, len)
        }
    }

    #[test]
    fn an_access_list_that_cannot_be_read_is_not_a_missing_one() {
        let fails = AtomicBool::new(false);
        let device = Arc::new(UnreadableDevice { inner: Shape::new(8, 1024, true).make(), fails });
        let volume = Volume::open_device(Arc::clone(&device) as _, &VolumeOptions::new()).unwrap();
        volume.write("/file", "text").unwrap();
        let node = volume.root().unwrap().lookup(b"file").unwrap();
        // Tag, permissions and user of each entry. The filler leaves the list no room in the inode.
        let entries =
            [(1, 6, u32::MAX), (2, 0, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 4, u32::MAX)];
        let mut list = vec![2, 0, 0, 0];
        for (tag, permissions, user) in entries {
            list.extend([tag, 0, permissions, 0]);
            list.extend(user.to_le_bytes());
        }
        node.set_xattr(b"user.filler", &[7; 60], XattrMode::Any).unwrap();
        node.set_xattr(ACCESS_LIST, &list, XattrMode::Any).unwrap();
        drop(node);
        volume.close().unwrap();
        let volume = Volume::open_device(Arc::clone(&device) as _, &VolumeOptions::new()).unwrap();
        let server = Server::new(volume, Path::new("image"), MountOptions::new()).unwrap();
        let ino = server.lookup(INodeNo::ROOT, b"file").unwrap().attr.ino;
        device.fails.store(true, Ordering::Relaxed);
        let failed = server.xattr(ino, ACCESS_LIST).map_err(|failure| failure.errno().code());
        assert_eq!(failed, Err(libc::EIO));
        device.fails.store(false, Ordering::Relaxed);
        assert_eq!(server.xattr(ino, ACCESS_LIST).unwrap(), list);
    }
}

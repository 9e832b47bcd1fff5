//! Looks up, creates, renames and removes names.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use fuser::{INodeNo, RenameFlags};
use parext4::server::ServerInode as _;
use parext4::{Error, FileType, InodeFlags, InodeRef, Metadata, NewInode, RenameMode, Special};

use super::Server;
use super::privileges::S_ISGID;
use crate::kernel_cache::KernelPages;
use crate::protocol::attr::{Entry, decode_device};
use crate::protocol::{Caller, Failure, Outcome};

/// The arguments of a request that creates a name.
#[derive(Debug)]
pub(crate) struct NewName {
    pub parent: INodeNo,
    pub name: Vec<u8>,
    pub mode: u32,
    pub umask: u32,
    pub caller: Caller,
}

/// Returns the inode of a name, if the name exists.
fn named(dir: &InodeRef, name: &[u8]) -> Outcome<Option<InodeRef>> {
    match dir.lookup(name) {
        Ok(node) => Ok(Some(node)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if an entry of the directory can be looked up by several names.
pub(super) fn has_spellings(dir: &InodeRef) -> bool {
    dir.flags().intersects(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
}

impl Server {
    /// Returns the attributes of an inode for a reply by which the kernel learns of its name in a
    /// directory, and counts the look-up.
    pub(super) fn entry_in(&self, dir: &InodeRef, node: &InodeRef) -> Entry {
        Entry { keeps_name: !has_spellings(dir), ..self.entry_of_lookup(node) }
    }

    /// Returns the names that the kernel must forget after a rename between two names. The kernel
    /// moves its cache entry of the old name to the new one, which may be in a directory whose
    /// names it must not cache. It never knows two spellings of a directory's name. If an inode
    /// cannot be read, the kernel must forget the name.
    pub fn names_to_forget<'a>(&self, names: &'a [(INodeNo, Vec<u8>); 2]) -> Vec<&'a (INodeNo, Vec<u8>)> {
        let [old, new] = names.each_ref().map(|name| (name, self.inode_ref(name.0).ok()));
        let must_forget = |(name, dir): &(&(INodeNo, Vec<u8>), Option<InodeRef>), from: Option<&InodeRef>| {
            dir.as_ref().is_none_or(has_spellings)
                && from.is_none_or(|from| !has_spellings(from))
                && dir.as_ref().is_none_or(|dir| match named(dir, &name.1) {
                    Ok(node) => node.is_some_and(|node| node.file_type() != FileType::Directory),
                    Err(_) => true,
                })
        };
        let pairs = [(&old, new.1.as_ref()), (&new, old.1.as_ref())];
        pairs.into_iter().filter(|(to, from)| must_forget(to, *from)).map(|(to, _)| to.0).collect()
    }

    /// Returns the attributes of the new inode.
    fn new_inode(&self, new: &NewName, dir: &InodeRef) -> Outcome<NewInode> {
        let bits = |mode: u32| u16::try_from(mode & 0o7777).unwrap_or(0);
        let (uid, gid) = new.caller.new_owner()?;
        let gid = if self.group_of_directory { dir.metadata().gid } else { gid };
        let (uid, gid) = self.owner(uid, gid);
        // In a set-group-ID directory the volume stores the directory's group. With `idmap` the
        // caller's groups are not known, and the kernel has checked them already, against the group
        // that the directory shows.
        let Metadata { permissions, gid: dir_gid, .. } = dir.metadata();
        let is_checked = self.options.idmap && self.options.gid.is_none();
        let stored_gid = if permissions & S_ISGID != 0 && !is_checked { dir_gid } else { gid };
        let permissions = bits(new.mode);
        let lost = self.set_ids_lost_by_creation(permissions, (uid, stored_gid), new.caller);
        Ok(NewInode::new().permissions(permissions & !lost).umask(bits(new.umask)).uid(uid).gid(gid))
    }

    /// Looks up a name. For a name that does not exist, returns an entry that the kernel caches,
    /// unless the directory may be changed to ignore case: the name then exists as soon as another
    /// spelling is created.
    pub fn lookup(&self, parent: INodeNo, name: &[u8]) -> Outcome<Entry> {
        match name {
            b"." => return self.lookup_number(parent),
            b".." => return self.lookup_parent(parent),
            _ => {}
        }
        let dir = self.inode_ref(parent)?;
        match dir.lookup(name) {
            Ok(node) => Ok(self.entry_in(&dir, &node)),
            Err(Error::NotFound(_)) if !self.may_ignore_case => Ok(Entry::negative()),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a regular file. Returns the directory and the file.
    pub fn create_file(&self, new: &NewName) -> Outcome<(InodeRef, InodeRef)> {
        self.create_inode(new, |dir, inode| dir.create(&new.name, inode))
    }

    pub fn mkdir(&self, new: &NewName) -> Outcome<Entry> {
        let (dir, node) = self.create_inode(new, |dir, inode| dir.mkdir(&new.name, inode))?;
        Ok(self.entry_in(&dir, &node))
    }

    pub fn mknod(&self, new: &NewName, device: u32) -> Outcome<Entry> {
        let (major, minor) = decode_device(device);
        let special = match new.mode & libc::S_IFMT {
            libc::S_IFREG => {
                let (dir, node) = self.create_file(new)?;
                return Ok(self.entry_in(&dir, &node));
            }
            libc::S_IFIFO => Special::Fifo,
            libc::S_IFSOCK => Special::Socket,
            libc::S_IFCHR => Special::CharDevice { major, minor },
            libc::S_IFBLK => Special::BlockDevice { major, minor },
            _ => return Err(Failure::INVALID),
        };
        let (dir, node) = self.create_inode(new, |dir, inode| dir.mknod(&new.name, special, inode))?;
        Ok(self.entry_in(&dir, &node))
    }

    pub fn symlink(&self, new: &NewName, target: &[u8]) -> Outcome<Entry> {
        let (dir, node) = self.create_inode(new, |dir, inode| dir.symlink(&new.name, target, inode))?;
        Ok(self.entry_in(&dir, &node))
    }

    fn create_inode(
        &self,
        new: &NewName,
        create: impl FnOnce(&InodeRef, &NewInode) -> parext4::Result<InodeRef>,
    ) -> Outcome<(InodeRef, InodeRef)> {
        let dir = self.inode_ref_for(new.parent, new.caller)?;
        let node = create(&dir, &self.new_inode(new, &dir)?)?;
        self.after_change(&dir)?;
        Ok((dir, node))
    }

    pub fn link(&self, ino: INodeNo, parent: INodeNo, name: &[u8], caller: Caller) -> Outcome<Entry> {
        let (node, dir) = (self.inode_ref(ino)?, self.inode_ref_for(parent, caller)?);
        dir.link(name, &node)?;
        self.after_change(&dir)?;
        Ok(self.entry_in(&dir, &node))
    }

    pub fn read_link(&self, ino: INodeNo) -> Outcome<Vec<u8>> {
        let node = self.inode_ref(ino)?;
        let target = node.read_link()?;
        self.update_atime(&node);
        Ok(target.into_os_string().into_vec())
    }

    /// Calls `remove`, which may remove the name of an inode, and pins the inode for as long as the
    /// kernel knows it. The kernel serializes the changes of one directory, so the name stands for
    /// the same inode until `remove` returns.
    fn remove_name(
        &self,
        dir: &InodeRef,
        name: &[u8],
        remove: impl FnOnce() -> parext4::Result<()>,
    ) -> Outcome<()> {
        let node = named(dir, name)?;
        remove()?;
        if let Some(node) = node {
            self.lookup_counts.pin_unlinked(&node);
        }
        Ok(())
    }

    pub fn unlink(&self, parent: INodeNo, name: &[u8]) -> Outcome<()> {
        let dir = self.inode_ref(parent)?;
        self.remove_name(&dir, name, || dir.unlink(name))?;
        self.after_change(&dir)
    }

    pub fn rmdir(&self, parent: INodeNo, name: &[u8]) -> Outcome<()> {
        let dir = self.inode_ref(parent)?;
        self.remove_name(&dir, name, || dir.rmdir(name))?;
        self.after_change(&dir)
    }

    /// Returns the kernel's pages of the files that replace another file in a rename, if some of
    /// the pages may be dirty or were lost. The kernel writes them back first, so that a name
    /// always leads to all data of one of the files.
    ///
    /// # Errors
    /// If a name cannot be looked up. A name that does not exist is not an error.
    pub fn dirty_before_rename(
        &self,
        old: &(INodeNo, Vec<u8>),
        new: &(INodeNo, Vec<u8>),
        flags: RenameFlags,
    ) -> Outcome<[Option<Arc<KernelPages>>; 2]> {
        let find = |(dir, name): &(INodeNo, Vec<u8>)| named(&self.inode_ref(*dir)?, name);
        let dirty = |name| -> Outcome<_> {
            let pages = find(name)?.and_then(|node| self.kernel_pages(&node));
            Ok(pages.filter(|pages| pages.may_be_dirty() || pages.lost().is_some()))
        };
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            return Ok([dirty(old)?, dirty(new)?]);
        }
        let moved = dirty(old)?;
        let replaces = moved.is_some() && find(new)?.is_some();
        Ok([moved.filter(|_| replaces), None])
    }

    pub fn rename(
        &self,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        flags: RenameFlags,
        caller: Caller,
    ) -> Outcome<()> {
        let mode = match flags - RenameFlags::RENAME_WHITEOUT {
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            left if left.is_empty() => RenameMode::Replace,
            _ => return Err(Failure::INVALID),
        };
        let (old_dir, new_dir) = (self.inode_ref_for(from.0, caller)?, self.inode_ref_for(to.0, caller)?);
        let leaves_whiteout = flags.contains(RenameFlags::RENAME_WHITEOUT);
        let owner = leaves_whiteout.then(|| caller.new_owner()).transpose()?;
        self.remove_name(&new_dir, to.1, || match owner {
            Some((uid, gid)) => {
                let (uid, gid) = self.owner(uid, gid);
                let whiteout = NewInode::new().permissions(0).umask(0).uid(uid).gid(gid);
                old_dir.rename_with_whiteout(from.1, &new_dir, to.1, mode, &whiteout)
            }
            None => old_dir.rename(from.1, &new_dir, to.1, mode),
        })?;
        self.after_change(&old_dir)?;
        self.after_change(&new_dir)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fuser::Errno;
    use parext4::device::{FaultDevice, FaultKind, FaultPlan};
    use parext4::{Volume, VolumeOptions};
    use testkit::volume::Shape;

    use super::*;
    use crate::options::MountOptions;

    const FILES: u32 = 40;

    fn name(nth: u32) -> Vec<u8> {
        format!("file{nth}").into_bytes()
    }

    /// Returns a server that keeps little metadata in memory, and its device. The volume has files
    /// with the names `name(0)` and so on.
    fn server() -> (Server, Arc<FaultDevice>) {
        let memory = Arc::new(Shape::new(8, 1024, true).make());
        let volume = Volume::open_device(Arc::clone(&memory) as _, &VolumeOptions::new()).unwrap();
        (0..FILES).for_each(|nth| volume.write(format!("/file{nth}"), "text").unwrap());
        volume.close().unwrap();
        let device = Arc::new(FaultDevice::new(memory, FaultPlan::default()));
        let options = VolumeOptions::new().metadata_cache_bytes(1).commit_interval(None);
        let volume = Volume::open_device(Arc::clone(&device) as _, &options).unwrap();
        (Server::new(volume, Path::new("image"), MountOptions::new()).unwrap(), device)
    }

    /// Evicts the metadata of the first file, and has the device fail one read.
    fn fail_a_read(server: &Server, device: &FaultDevice) {
        for nth in FILES / 2..FILES {
            server.lookup(INodeNo::ROOT, &name(nth)).unwrap();
        }
        device.arm(FaultPlan::at(1).kind(FaultKind::Reads));
    }

    #[test]
    fn a_name_whose_inode_cannot_be_read_is_not_removed() {
        let (server, device) = server();
        let ino = server.lookup(INodeNo::ROOT, &name(0)).unwrap().attr.ino;
        fail_a_read(&server, &device);
        let removed = server.unlink(INodeNo::ROOT, &name(0));
        assert!(device.failed().is_some(), "the device has failed a read");
        assert_eq!(removed.map_err(|failure| failure.errno()), Err(Errno::EIO));
        server.unlink(INodeNo::ROOT, &name(0)).unwrap();
        assert_eq!(server.attributes(ino).unwrap().attr.nlink, 0, "the kernel still knows the inode");
    }

    #[test]
    fn a_rename_fails_if_it_cannot_read_which_pages_to_write_back() {
        let (server, device) = server();
        let ino = server.lookup(INodeNo::ROOT, &name(0)).unwrap().attr.ino;
        let pages = server.lookup_counts.kernel_pages(ino).unwrap();
        let _writer = pages.add_writer(false);
        pages.note_fill();
        let [old, new] = [0, 1].map(|nth| (INodeNo::ROOT, name(nth)));
        let dirty = || server.dirty_before_rename(&old, &new, RenameFlags::empty());
        assert!(dirty().unwrap()[0].is_some());
        fail_a_read(&server, &device);
        let failed = dirty();
        assert!(device.failed().is_some(), "the device has failed a read");
        assert_eq!(failed.map(|_| ()).map_err(|failure| failure.errno()), Err(Errno::EIO));
    }
}

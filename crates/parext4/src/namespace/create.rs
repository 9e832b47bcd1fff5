//! Creating files, directories, symbolic links and special files.
//!
//! Responsible for allocating a new inode and its first block, and for undoing that if space runs
//! out. Not responsible for the directory entry: [`insert`](super::insert) adds it. Invariant: a
//! failed call leaves no inode and no block allocated.

use parext4_format::dir_entry::inline;
use parext4_format::features::Incompat;
use parext4_format::inode::{FileType, INLINE_BLOCK, Inode as RawInode, InodeFlags};
use parext4_format::{BlockRange, FileBlock, InodeNo, dir_entry};

use super::dir::Dir;
use super::insert::Insertion;
use super::new_inode::{NewInode, Special};
use super::symlink;
use super::{check_name, printable};
use crate::allocator::{ALLOCATE_CREDITS, INODE_CREDITS};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::inode::{Inode, inherited};
use crate::inode_ref::InodeRef;
use crate::journal::Handle;
use crate::quota::QuotaIds;
use crate::sync::Arc;
use crate::xattr::{InheritedAcl, XattrChange};

/// Set-group-ID. In a directory: new inodes in it get its group.
pub(super) const S_ISGID: u16 = 0o2000;
/// The permission bits of a mode, including the set-ID and sticky bits.
pub(super) const PERMISSIONS: u16 = 0o7777;

/// Number of blocks that allocating a new inode's first block registers: the allocator's, and the
/// block itself. The map of a new inode has room in its root.
const FIRST_BLOCK_CREDITS: u32 = ALLOCATE_CREDITS + 1;

/// A new inode with its attributes and contents, before its number is allocated.
#[derive(Debug)]
pub(super) struct PreparedInode<'a> {
    raw: RawInode,
    xattrs: XattrChange,
    contents: Contents<'a>,
}

/// The contents of a new inode besides its attributes.
#[derive(Clone, Copy, Debug)]
enum Contents<'a> {
    Nothing,
    /// The entries `.` and `..`, in a block.
    Directory,
    /// The target of a symbolic link that does not fit the inode.
    Target(&'a [u8]),
}

impl PreparedInode<'_> {
    /// Returns the number of blocks that creating the inode registers, without its entry.
    pub(super) fn credits(&self) -> u32 {
        INODE_CREDITS + self.contents.blocks() * FIRST_BLOCK_CREDITS + self.xattrs.credits()
    }
}

impl Contents<'_> {
    fn blocks(self) -> u32 {
        u32::from(!matches!(self, Self::Nothing))
    }
}

impl InodeRef {
    /// Creates an empty regular file.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::{File, NewInode, OpenOptions};
    ///
    /// let node = root.create(b"file", &NewInode::new().permissions(0o600).uid(1000).gid(1000))?;
    /// File::new(node, &OpenOptions::read_write())?.append(b"text")?;
    /// assert_eq!(volume.read("/file")?, b"text");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if an entry of that name exists; [`Error::NoSpace`], [`Error::NoInodes`];
    /// [`Error::NoKey`] if the directory is encrypted; [`Error::Invalid`] if it ignores case and
    /// refuses the name.
    pub fn create(&self, name: &[u8], new: &NewInode) -> Result<InodeRef> {
        let mut prepared = self.prepare_inode(FileType::Regular, new)?;
        self.begins_inline(&mut prepared, &[]);
        self.make(name, prepared)
    }

    /// Creates an empty directory.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::NewInode;
    ///
    /// let dir = root.mkdir(b"dir", &NewInode::new().permissions(0o755))?;
    /// dir.create(b"file", &NewInode::new())?;
    /// assert!(volume.exists("/dir/file")?);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`create`](Self::create); [`Error::TooManyLinks`] if the directory has 64,998
    /// subdirectories and the volume or the directory does not permit more (`dir_nlink`).
    pub fn mkdir(&self, name: &[u8], new: &NewInode) -> Result<InodeRef> {
        let mut prepared = self.prepare_inode(FileType::Directory, new)?;
        prepared.raw.links = 2;
        if self.begins_inline(&mut prepared, &inline::empty(self.ino())) {
            prepared.raw.size = INLINE_BLOCK as u64;
        } else {
            prepared.contents = Contents::Directory;
        }
        self.make(name, prepared)
    }

    /// Creates a symbolic link to `target`. Ignores the permissions in `new`: the link gets
    /// `0o777`.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::NewInode;
    ///
    /// let link = root.symlink(b"link", b"target", &NewInode::new().uid(1000))?;
    /// assert_eq!(link.read_link()?, std::path::Path::new("target"));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`create`](Self::create); [`Error::Invalid`] if the target is empty or contains NUL,
    /// [`Error::NameTooLong`] if it does not fit a block.
    pub fn symlink(&self, name: &[u8], target: &[u8], new: &NewInode) -> Result<InodeRef> {
        symlink::check_target(target, self.engine.block_size())?;
        let mut prepared = self.prepare_inode(FileType::Symlink, &new.permissions(0o777))?;
        let raw = &mut prepared.raw;
        raw.size = target.len() as u64;
        match raw.block.get_mut(..target.len()).filter(|_| symlink::is_short(target)) {
            Some(block) => block.copy_from_slice(target),
            None => {
                if self.engine.superblock().incompat().contains(Incompat::EXTENTS) {
                    raw.flags |= InodeFlags::EXTENTS;
                }
                prepared.contents = Contents::Target(target);
            }
        }
        self.make(name, prepared)
    }

    /// Creates a special file.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::{NewInode, Special};
    ///
    /// let null = root.mknod(b"null", Special::CharDevice { major: 1, minor: 3 }, &NewInode::new())?;
    /// assert_eq!(null.metadata().rdev, Some((1, 3)));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`create`](Self::create); [`Error::Invalid`] if a device number is too large for the
    /// format.
    pub fn mknod(&self, name: &[u8], special: Special, new: &NewInode) -> Result<InodeRef> {
        let (file_type, device) = match special {
            Special::CharDevice { major, minor } => (FileType::CharDevice, Some((major, minor))),
            Special::BlockDevice { major, minor } => (FileType::BlockDevice, Some((major, minor))),
            Special::Fifo => (FileType::Fifo, None),
            Special::Socket => (FileType::Socket, None),
        };
        let mut prepared = self.prepare_inode(file_type, new)?;
        if let Some((major, minor)) = device {
            if major >= 1 << 12 || minor >= 1 << 20 {
                return Err(Error::invalid(format_args!("the device number {major}:{minor}")));
            }
            prepared.raw.set_rdev(major, minor);
        }
        self.make(name, prepared)
    }

    /// Has a new inode begin with `contents` in it, if the volume stores small contents there and
    /// there is room beside the attributes that it inherits. Returns true if it does.
    fn begins_inline(&self, prepared: &mut PreparedInode<'_>, contents: &[u8]) -> bool {
        let PreparedInode { raw, xattrs, .. } = prepared;
        self.engine.superblock().incompat().contains(Incompat::INLINE_DATA)
            && xattrs.make_inline(raw, contents)
    }

    /// Prepares an inode for this directory, with one link.
    fn prepare_inode(&self, file_type: FileType, new: &NewInode) -> Result<PreparedInode<'static>> {
        // Checked here for the access control list. The insertion checks again that this is a
        // directory.
        self.dir()?;
        let (mode, gid, flags, projid) = {
            let parent = self.inode.core();
            (parent.mode, parent.gid, parent.flags, parent.projid)
        };
        let is_dir = file_type == FileType::Directory;
        let shares_group = mode & S_ISGID != 0;
        let mut permissions = new.permissions & PERMISSIONS;
        if shares_group && is_dir {
            permissions |= S_ISGID;
        }
        let mut raw = RawInode::new(file_type.mode_bits() | permissions, self.engine.superblock());
        raw.uid = new.uid;
        raw.gid = if shares_group { gid } else { new.gid };
        raw.links = 1;
        raw.flags = inherited(file_type, flags);
        raw.projid = if self.inherits_project() { projid } else { 0 };
        self.engine.add_quota_entries(QuotaIds::of(&raw))?;
        let now = self.engine.clock().now();
        (raw.atime, raw.mtime, raw.ctime, raw.crtime) = (now, now, now, now);
        let InheritedAcl { permissions, xattrs } = self.inherit(&raw, new.umask)?;
        raw.mode = raw.mode & !0o777 | permissions;
        Ok(PreparedInode { raw, xattrs, contents: Contents::Nothing })
    }

    /// Prepares a whiteout, which a rename may put in the place of the old name: a character device
    /// 0:0.
    pub(super) fn prepare_whiteout(&self, new: &NewInode) -> Result<PreparedInode<'static>> {
        let mut prepared = self.prepare_inode(FileType::CharDevice, &new.permissions(0))?;
        prepared.raw.set_rdev(0, 0);
        Ok(prepared)
    }

    fn make(&self, name: &[u8], prepared: PreparedInode<'_>) -> Result<InodeRef> {
        check_name(name)?;
        let dir = self.dir()?;
        let _entries = self.inode.change_entries();
        dir.check_alive()?;
        dir.check_insertable()?;
        if dir.find(name)?.is_some() {
            return Err(Error::Exists(printable(name)));
        }
        let is_dir = prepared.raw.file_type() == FileType::Directory;
        if is_dir {
            dir.check_subdirs()?;
        }
        let insertion = dir.plan_insertion(name)?;
        let credits = insertion.credits()? + prepared.credits();
        let inode = self.engine.with_space(|| {
            self.engine.transact(credits, |handle| {
                let inode = self.new_child(handle, &insertion, &prepared)?;
                insertion.apply(handle, inode.ino(), inode.file_type())?;
                if is_dir {
                    dir.add_subdir();
                }
                self.inode.touch_modified();
                Ok(inode)
            })
        })?;
        Ok(InodeRef::new(&self.engine, inode))
    }

    /// Allocates the inode, its first block and the blocks for its entry. Without space, allocates
    /// nothing.
    fn new_child(
        &self,
        handle: &Handle<'_>,
        insertion: &Insertion<'_>,
        prepared: &PreparedInode<'_>,
    ) -> Result<Arc<Inode>> {
        insertion.allocate(handle)?;
        match self.new_nameless(handle, prepared) {
            Ok(inode) => Ok(inode),
            Err(error) => {
                insertion.free_blocks(handle)?;
                Err(error)
            }
        }
    }

    /// Allocates an inode and its first block, for an entry that the caller adds to this directory.
    /// Without space, allocates nothing.
    pub(super) fn new_nameless(
        &self,
        handle: &Handle<'_>,
        prepared: &PreparedInode<'_>,
    ) -> Result<Arc<Inode>> {
        let engine = &self.engine;
        let is_dir = prepared.raw.file_type() == FileType::Directory;
        let quota = engine.reserve_new_inode(&prepared.raw, engine.credentials())?;
        let (ino, table_block) = engine.allocator().allocate_inode(handle, self.ino(), is_dir)?;
        drop(quota);
        // Without links, so that `inode_by_number` returns no reference to an inode that may be
        // undone.
        let mut raw = prepared.raw.clone();
        raw.links = guarded!(Fault::LinksBeforeContents, 0, raw.links);
        let inode = engine.new_inode(ino, raw, table_block)?;
        inode.charge_inodes(handle, 1);
        let attributes = prepared.xattrs.apply(engine, handle, &inode);
        if let Err(error) = attributes.and_then(|()| self.write_contents(handle, &inode, prepared.contents)) {
            self.undo(handle, &inode, is_dir)?;
            return Err(error);
        }
        inode.join(handle);
        inode.core().links = prepared.raw.links;
        Ok(inode)
    }

    /// Allocates and fills the first block of a new inode. Without space, changes nothing, but the
    /// inode may have joined the handle.
    fn write_contents(&self, handle: &Handle<'_>, inode: &Arc<Inode>, contents: Contents<'_>) -> Result<()> {
        match contents {
            Contents::Nothing => Ok(()),
            Contents::Directory => {
                let dir = Dir::new(&self.engine, inode);
                let (tail, ino, parent, has_types) =
                    (dir.has_tail(), inode.ino(), self.ino(), dir.has_types());
                dir.map_blocks(handle, BlockRange::of_block(FileBlock::ZERO))?;
                dir.init_block(handle, FileBlock::ZERO, |bytes| {
                    dir_entry::init_dot_block(bytes, tail, ino, parent);
                    if !has_types {
                        dir_entry::clear_dot_types(bytes);
                    }
                    Ok(())
                })
            }
            Contents::Target(target) => symlink::write_target(&self.engine, handle, inode, target),
        }
    }

    /// Frees a new inode whose first block could not be allocated. If it joined the handle, it is
    /// written as deleted.
    fn undo(&self, handle: &Handle<'_>, inode: &Arc<Inode>, is_dir: bool) -> Result<()> {
        let ino: InodeNo = inode.ino();
        self.engine.release_xattr_block(handle, inode)?;
        inode.end_charges(handle, 0);
        inode.core().dtime = self.engine.deletion_time();
        self.engine.allocator().free_inode(handle, ino, is_dir)?;
        // As when an inode is deleted.
        self.engine.inodes().remove(inode);
        Ok(())
    }
}

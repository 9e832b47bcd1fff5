//! A FUSE file system that answers every request at once and stores no data: files have names and
//! sizes, but neither contents nor extended attributes. What a mount costs in comparison is its own
//! work, not that of FUSE.

mod inodes;

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parext4_mount::{MountOptions, Transport};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use inodes::{Inodes, negative};

/// How long the kernel may cache names and attributes: as long as it may cache them for a mounted
/// volume.
const TTL: Duration = Duration::from_secs(1 << 30);
/// Limit of one read request, in bytes.
const MAX_READ: usize = 1 << 20;

/// Mounts the null file system on `dir`, and serves it until it is unmounted.
///
/// # Errors
/// An error of FUSE.
pub fn serve(dir: &Path) -> io::Result<()> {
    let transport = Transport::new(&MountOptions::new());
    let null =
        Null { transport: transport.clone(), inodes: Mutex::new(Inodes::new()), zeros: vec![0; MAX_READ] };
    transport.serve(null, dir, "null")
}

struct Null {
    transport: Transport,
    inodes: Mutex<Inodes>,
    zeros: Vec<u8>,
}

impl Null {
    fn remove(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.inodes.lock().names.remove(&(parent, name.to_owned())) {
            Some(_) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }
}

/// Returns the flags that a mounted volume would reply to an open by default.
fn flags(flags: i32) -> FopenFlags {
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    if !flags.contains(OFlags::DIRECT) && flags & OFlags::ACCMODE != OFlags::WRONLY {
        return FopenFlags::FOPEN_KEEP_CACHE;
    }
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Filesystem for Null {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.transport.negotiate(config)
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _request = self.transport.begin_request();
        let inodes = self.inodes.lock();
        reply.entry(&TTL, inodes.look_up(parent, name).unwrap_or(&negative()), Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _request = self.transport.begin_request();
        match self.inodes.lock().attrs.get(&ino) {
            Some(attr) => reply.attr(&TTL, attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _request = self.transport.begin_request();
        match self.inodes.lock().attrs.get_mut(&ino) {
            Some(attr) => {
                attr.size = size.unwrap_or(attr.size);
                reply.attr(&TTL, attr);
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let _request = self.transport.begin_request();
        let attr = self.inodes.lock().create(parent, name, FileType::Directory);
        reply.entry(&TTL, &attr, Generation(0));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.transport.begin_request();
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.transport.begin_request();
        self.remove(parent, name, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _request = self.transport.begin_request();
        let mut inodes = self.inodes.lock();
        match inodes.names.remove(&(parent, name.to_owned())) {
            Some(ino) => {
                inodes.names.insert((new_parent, new_name.to_owned()), ino);
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        how: i32,
        reply: ReplyCreate,
    ) {
        let _request = self.transport.begin_request();
        let attr = self.inodes.lock().create(parent, name, FileType::RegularFile);
        reply.created(&TTL, &attr, Generation(0), FileHandle(0), flags(how));
    }

    fn open(&self, _: &Request, _: INodeNo, how: OpenFlags, reply: ReplyOpen) {
        let _request = self.transport.begin_request();
        reply.opened(FileHandle(0), flags(how.0));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _request = self.transport.begin_request();
        reply.data(&self.zeros[..self.zeros.len().min(size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _request = self.transport.begin_request();
        self.inodes.lock().extend(ino, offset.saturating_add(data.len() as u64));
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _request = self.transport.begin_request();
        let inodes = self.inodes.lock();
        for (name, child) in inodes.entries_after(ino, offset) {
            if reply.add(child, child.0, name, &TTL, &inodes.attrs[&child], Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let _request = self.transport.begin_request();
        let inodes = self.inodes.lock();
        for (name, child) in inodes.entries_after(ino, offset) {
            if reply.add(child, child.0, inodes.attrs[&child].kind, name) {
                break;
            }
        }
        reply.ok();
    }

    /// Replies that there is no such attribute. Without an implementation, the kernel would stop
    /// asking for attributes, which it does before the first write of a file.
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        let _request = self.transport.begin_request();
        reply.error(Errno::ENODATA);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let _request = self.transport.begin_request();
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        let _request = self.transport.begin_request();
        self.inodes.lock().extend(ino, offset.saturating_add(len));
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _request = self.transport.begin_request();
        reply.ok();
    }
}

//! A file system that answers at once: files have names and sizes, but no contents nor extended attributes. What FUSE
//! itself takes shows.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, ReplyXattr, Request,
    Session, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;

use crate::connection::{extend_read_ahead, negotiate};
use crate::options::{Cache, MountOptions};
use crate::protocol::attr::{CACHE_FOREVER as TTL, Entry};
use crate::threads::RequestThreads;

/// Mounts it on `dir` and answers the kernel until it is unmounted; `options` say what is cached, and how many threads
/// answer.
///
/// # Errors
/// What FUSE gives.
pub fn serve_null(dir: &Path, options: &MountOptions) -> io::Result<()> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("null".to_owned())];
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    let request_threads = Arc::new(RequestThreads::new(options.threads));
    let dir = dir.canonicalize()?;
    let session = Session::new(Null::new(options.cache, Arc::clone(&request_threads)), &dir, &config)?;
    request_threads.set_device(session.as_fd().try_clone_to_owned()?);
    extend_read_ahead(&dir);
    session.run()
}

struct Null {
    cache: Cache,
    request_threads: Arc<RequestThreads>,
    nodes: Mutex<Nodes>,
    zeros: Vec<u8>,
}

#[derive(Default)]
struct Nodes {
    attrs: HashMap<INodeNo, FileAttr>,
    names: HashMap<(INodeNo, OsString), INodeNo>,
}

impl Nodes {
    fn add(&mut self, kind: FileType) -> FileAttr {
        let ino = INodeNo(self.attrs.len() as u64 + 1);
        let attr = FileAttr { ino, kind, perm: 0o755, nlink: 1, blksize: 4096, ..Entry::negative().attr };
        self.attrs.insert(ino, attr);
        attr
    }

    fn named(&mut self, parent: INodeNo, name: &OsStr, kind: FileType) -> FileAttr {
        let attr = self.add(kind);
        self.names.insert((parent, name.to_owned()), attr.ino);
        attr
    }

    /// What a directory holds behind `offset`, in order: that of an entry is its number.
    fn below(&self, dir: INodeNo, offset: u64) -> impl Iterator<Item = (&OsStr, INodeNo)> {
        let inside = self.names.iter().filter(|((parent, _), _)| *parent == dir);
        let mut below: Vec<_> = inside.map(|((_, name), &child)| (&**name, child)).collect();
        below.sort_unstable_by_key(|&(_, child)| child);
        below.into_iter().filter(move |&(_, child)| child.0 > offset)
    }

    fn grow(&mut self, ino: INodeNo, end: u64) {
        if let Some(attr) = self.attrs.get_mut(&ino) {
            attr.size = attr.size.max(end);
        }
    }
}

impl Null {
    fn new(cache: Cache, request_threads: Arc<RequestThreads>) -> Self {
        let mut nodes = Nodes::default();
        nodes.add(FileType::Directory);
        Self { cache, request_threads, nodes: Mutex::new(nodes), zeros: vec![0; 1 << 20] }
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.nodes.lock().names.remove(&(parent, name.to_owned())) {
            Some(_) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }
}

/// As the mount opens files by default.
fn flags(flags: i32) -> FopenFlags {
    if flags & libc::O_DIRECT == 0 && flags & libc::O_ACCMODE != libc::O_WRONLY {
        return FopenFlags::FOPEN_KEEP_CACHE;
    }
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Filesystem for Null {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(config, self.cache)
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _request = self.request_threads.begin_request();
        let nodes = self.nodes.lock();
        let attr = nodes.names.get(&(parent, name.to_owned())).and_then(|ino| nodes.attrs.get(ino));
        reply.entry(&TTL, attr.unwrap_or(&Entry::negative().attr), Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _request = self.request_threads.begin_request();
        match self.nodes.lock().attrs.get(&ino) {
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
        let _request = self.request_threads.begin_request();
        match self.nodes.lock().attrs.get_mut(&ino) {
            Some(attr) => {
                attr.size = size.unwrap_or(attr.size);
                reply.attr(&TTL, attr);
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let _request = self.request_threads.begin_request();
        let attr = self.nodes.lock().named(parent, name, FileType::Directory);
        reply.entry(&TTL, &attr, Generation(0));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.request_threads.begin_request();
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _request = self.request_threads.begin_request();
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
        let _request = self.request_threads.begin_request();
        let mut nodes = self.nodes.lock();
        match nodes.names.remove(&(parent, name.to_owned())) {
            Some(ino) => {
                nodes.names.insert((new_parent, new_name.to_owned()), ino);
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
        let _request = self.request_threads.begin_request();
        let attr = self.nodes.lock().named(parent, name, FileType::RegularFile);
        reply.created(&TTL, &attr, Generation(0), FileHandle(0), flags(how));
    }

    fn open(&self, _: &Request, _: INodeNo, how: OpenFlags, reply: ReplyOpen) {
        let _request = self.request_threads.begin_request();
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
        let _request = self.request_threads.begin_request();
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
        let _request = self.request_threads.begin_request();
        self.nodes.lock().grow(ino, offset.saturating_add(data.len() as u64));
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
        let _request = self.request_threads.begin_request();
        let nodes = self.nodes.lock();
        for (name, child) in nodes.below(ino, offset) {
            if reply.add(child, child.0, name, &TTL, &nodes.attrs[&child], Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let _request = self.request_threads.begin_request();
        let nodes = self.nodes.lock();
        for (name, child) in nodes.below(ino, offset) {
            if reply.add(child, child.0, nodes.attrs[&child].kind, name) {
                break;
            }
        }
        reply.ok();
    }

    /// Without an answer, the kernel would ask for no attributes any more, as it does before a file is written first.
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        let _request = self.request_threads.begin_request();
        reply.error(Errno::ENODATA);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let _request = self.request_threads.begin_request();
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
        let _request = self.request_threads.begin_request();
        self.nodes.lock().grow(ino, offset.saturating_add(len));
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
        let _request = self.request_threads.begin_request();
        reply.ok();
    }
}

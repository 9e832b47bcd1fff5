//! The requests of the kernel, each with the operation that carries it out.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, IoctlFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

use crate::answer::{Answer, Value};
use crate::attributes::NewAttributes;
use crate::caller::Caller;
use crate::capabilities::{allow_idmapped_mounts, negotiate};
use crate::crew::{Crew, Expected};
use crate::data::{Read, Write};
use crate::failure::Outcome;
use crate::files::Place;
use crate::flags::sets_flags;
use crate::invalidation::Invalidation;
use crate::kernel_pages::KernelPages;
use crate::lanes::Lanes;
use crate::names::NewName;
use crate::report::Requests;
use crate::server::Server;
use crate::under_way::{Stage, Ticket, Watchdog, What};
use crate::workers::Workers;
use crate::xattrs::names_report;

/// Where requests come in.
#[derive(Debug)]
pub(crate) struct Front {
    pub server: Arc<Server>,
    pub crew: Arc<Crew>,
    pub workers: Arc<Workers>,
    pub lanes: Lanes,
    pub deferred: Arc<Deferred>,
    _watchdog: Watchdog,
}

/// What a request needs once the thread that read it has handed it to another thread.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub server: Arc<Server>,
    pub workers: Arc<Workers>,
    pub invalidation: Invalidation,
}

impl Deferred {
    /// Has a worker finish a request.
    pub fn give(self: &Arc<Self>, ticket: Ticket, job: impl FnOnce(&Arc<Self>, Ticket) + Send + 'static) {
        let deferred = Arc::clone(self);
        ticket.enter(Stage::WaitsForWorker);
        self.workers.give(move || {
            ticket.enter(Stage::Runs);
            job(&deferred, ticket);
        });
    }
}

/// Limit of workers. Requests may block on each other, so the limit is far above the number of busy threads. No worker
/// blocks on the kernel.
const WORKERS: usize = 512;

impl Front {
    pub fn new(server: Arc<Server>) -> io::Result<Self> {
        let crew = Arc::new(Crew::new(server.options.threads));
        let lanes = Lanes::new(&server.volume)?;
        let workers = Arc::new(Workers::new("parext4-worker", WORKERS));
        let deferred = Arc::new(Deferred {
            server: Arc::clone(&server),
            workers: Arc::clone(&workers),
            invalidation: Invalidation::new(server.notifier.clone()),
        });
        let _watchdog = Watchdog::start(Arc::clone(&server.under_way))?;
        Ok(Self { server, crew, workers, lanes, deferred, _watchdog })
    }

    /// Carries out an operation for whoever sent the request, and answers.
    fn answer<T, R: Answer<T> + Send + 'static>(
        &self,
        what: What,
        request: &Request,
        reply: R,
        operation: impl FnOnce(&Server) -> Outcome<T> + Send + 'static,
    ) {
        // What changes names then waits for the device.
        let syncs = self.server.options.sync || self.server.options.dirsync;
        let expected = if syncs { Expected::Long } else { Expected::Short };
        self.answer_as(what, expected, request, reply, operation);
    }

    /// As [`answer`](Self::answer), for what waits for the device.
    fn answer_later<T, R: Answer<T> + Send + 'static>(
        &self,
        what: What,
        request: &Request,
        reply: R,
        operation: impl FnOnce(&Server) -> Outcome<T> + Send + 'static,
    ) {
        self.answer_as(what, Expected::Long, request, reply, operation);
    }

    fn answer_as<T, R: Answer<T> + Send + 'static>(
        &self,
        what: What,
        expected: Expected,
        request: &Request,
        reply: R,
        operation: impl FnOnce(&Server) -> Outcome<T> + Send + 'static,
    ) {
        let caller = Caller::from(request);
        self.run(what, expected, move |server| {
            let may_use_reserved = server.may_use_reserved(caller);
            reply.answer(server.carry_out(may_use_reserved, || operation(server)));
        });
    }

    /// Like [`answer_later`](Self::answer_later), after the kernel has written back its dirty pages of the file.
    fn answer_written_back<T, R: Answer<T> + Send + 'static>(
        &self,
        what: What,
        pages: Option<Arc<KernelPages>>,
        request: &Request,
        reply: R,
        operation: impl FnOnce(&Server) -> Outcome<T> + Send + 'static,
    ) {
        let Some(pages) = pages.filter(|pages| pages.may_be_dirty()) else {
            return self.answer_later(what, request, reply, operation);
        };
        let (caller, deferred) = (Caller::from(request), Arc::clone(&self.deferred));
        let ticket = self.server.under_way.begin(what);
        ticket.enter(Stage::WaitsForKernel);
        self.crew.turn().hand_on();
        self.deferred.invalidation.drop_all(pages, move || {
            deferred.give(ticket, move |deferred, _ticket| {
                let server = &deferred.server;
                let may_use_reserved = server.may_use_reserved(caller);
                reply.answer(server.carry_out(may_use_reserved, || operation(server)));
            });
        });
    }

    /// The kernel's pages of an open file.
    fn pages(&self, handle: FileHandle) -> Option<Arc<KernelPages>> {
        self.server.open_file(handle).ok().map(|open| Arc::clone(&open.pages))
    }

    /// What is under way now. The request that asks does not count yet.
    fn load(&self) -> Requests {
        Requests {
            taken: self.crew.taken(),
            in_threads: self.crew.working() as u64,
            in_workers: self.workers.unfinished() as u64,
            in_lanes: self.lanes.under_way() as u64,
            in_kernel: self.deferred.invalidation.under_way() as u64,
        }
    }

    /// Carries a request out: here, or in a worker if nobody else would be left to take the next.
    fn run(&self, what: What, expected: Expected, operation: impl FnOnce(&Server) + Send + 'static) {
        let ticket = self.server.under_way.begin(what);
        let mut turn = self.crew.turn();
        if let Some(_working) = self.crew.work(expected) {
            return operation(&self.server);
        }
        turn.hand_on();
        self.deferred.give(ticket, move |deferred, _ticket| operation(&deferred.server));
    }
}

fn new_name(request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32) -> NewName {
    NewName { parent, name: bytes(name), mode, umask, caller: request.into() }
}

fn bytes(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(config, self.server.options.cache)?;
        if self.server.options.idmap {
            allow_idmapped_mounts(config)?;
        }
        let grain = self.server.time_grain();
        let refused = |nearest| io::Error::other(format!("times of {grain:?}, and not {nearest:?}"));
        config.set_time_granularity(grain).map(drop).map_err(refused)
    }

    fn destroy(&mut self) {
        // Lanes hand requests to invalidation and workers, invalidation hands them to workers, and all use files.
        self.lanes.finish();
        self.deferred.invalidation.finish();
        self.workers.finish();
        self.server.end();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = bytes(name);
        self.answer(What::new("lookup", parent), request, reply, move |server| server.lookup(parent, &name));
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        // No turn of its own: it may be one of a batch, after which the thread goes on at once.
        match self.crew.work(Expected::Short) {
            Some(_working) => self.server.nodes.forget(ino, lookups),
            None => {
                let server = Arc::clone(&self.server);
                self.workers.give(move || server.nodes.forget(ino, lookups));
            }
        }
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer(What::new("getattr", ino), request, reply, move |server| server.attributes(ino));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (new, caller) =
            (NewAttributes { mode, uid, gid, size, atime, mtime, ctime }, Caller::from(request));
        self.answer(What::new("setattr", ino), request, reply, move |server| {
            server.set_attributes(ino, &new, caller)
        });
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        self.answer(What::new("readlink", ino), request, reply, move |server| server.read_link(ino));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let new = new_name(request, parent, name, mode, umask);
        self.answer(What::new("mknod", parent), request, reply, move |server| server.mknod(&new, device));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = new_name(request, parent, name, mode, umask);
        self.answer(What::new("mkdir", parent), request, reply, move |server| server.mkdir(&new));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = new_name(request, parent, name, 0o777, 0);
        let target = bytes(target.as_os_str());
        self.answer(What::new("symlink", parent), request, reply, move |server| {
            server.symlink(&new, &target)
        });
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = bytes(name);
        self.answer(What::new("link", ino), request, reply, move |server| server.link(ino, parent, &name));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.answer(What::new("unlink", parent), request, reply, move |server| server.unlink(parent, &name));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.answer(What::new("rmdir", parent), request, reply, move |server| server.rmdir(parent, &name));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, new_name) = (bytes(name), bytes(new_name));
        let caller = request.into();
        self.answer(What::new("rename", parent), request, reply, move |server| {
            server.rename((parent, &name), (new_parent, &new_name), flags, caller)
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let new = new_name(request, parent, name, mode, umask);
        self.answer(What::new("create", parent), request, reply, move |server| server.create(&new, flags));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let caller = request.into();
        self.answer(What::new("open", ino), request, reply, move |server| server.open(ino, flags.0, caller));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.read(Read::new(Place { handle, offset }, size, owner), reply);
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let at = Place { handle, offset };
        self.write(Write::new(at, write_flags, flags.0, request.into()), data, reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing makes nothing durable; the kernel asks no more then.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.answer(What::new("release", ino), request, reply, move |server| server.release(handle));
    }

    fn fsync(&self, request: &Request, ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.answer_later(What::new("fsync", ino), request, reply, move |server| {
            server.sync_file(handle, data_only)
        });
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Directories are read by offset alone; the kernel asks no more, and keeps what it has read.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.run(What::new("readdir", ino), Expected::Short, move |server| {
            server.read_dir(ino, offset, reply)
        });
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.run(What::new("readdirplus", ino), Expected::Short, move |server| {
            server.read_dir_plus(ino, offset, reply)
        });
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.answer_later(What::new("fsyncdir", ino), request, reply, move |server| server.sync_dir(ino));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.answer(Ok(self.server.space()));
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value, caller) = (bytes(name), value.to_vec(), request.into());
        self.answer(What::new("setxattr", ino), request, reply, move |server| {
            server.set_xattr(ino, &name, &value, flags, caller)
        });
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (name, reply) = (bytes(name), Value { reply, room: size });
        if names_report(ino, &name) {
            let load = self.load();
            return self
                .answer(What::new("getxattr", ino), request, reply, move |server| server.report(load));
        }
        self.answer(What::new("getxattr", ino), request, reply, move |server| server.xattr(ino, &name));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = request.into();
        self.answer(What::new("listxattr", ino), request, Value { reply, room: size }, move |server| {
            server.xattr_names(ino, caller)
        });
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.answer(What::new("removexattr", ino), request, reply, move |server| {
            server.remove_xattr(ino, &name)
        });
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        argument: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let (argument, caller) = (argument.to_vec(), request.into());
        let operation = move |server: &Server| server.ioctl(ino, command, &argument, caller);
        let pages = sets_flags(command).then(|| self.server.nodes.pages(ino).ok()).flatten();
        self.answer_written_back(What::new("ioctl", ino), pages, request, reply, operation);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (at, caller) = (Place { handle, offset }, request.into());
        self.answer_later(What::new("fallocate", ino), request, reply, move |server| {
            server.allocate(at, len, mode, caller)
        });
    }

    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let at = Place { handle, offset: u64::try_from(offset).unwrap_or(u64::MAX) };
        self.answer_written_back(
            What::new("lseek", ino),
            self.pages(handle),
            request,
            reply,
            move |server| server.seek(at, whence),
        );
    }

    fn copy_file_range(
        &self,
        request: &Request,
        ino: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let from = Place { handle: from, offset: from_offset };
        let (to, caller) = (Place { handle: to, offset: to_offset }, request.into());
        // The kernel has written back only the range to copy, so its size of the source may be larger than the
        // volume's.
        let source = self.server.open_file(from.handle).ok();
        let pages = source.filter(|open| from_offset.saturating_add(len) > open.file.size());
        let pages = pages.map(|open| Arc::clone(&open.pages)).filter(|pages| pages.may_be_longer());
        self.answer_written_back(What::new("copy_file_range", ino), pages, request, reply, move |server| {
            server.copy(from, to, len, caller)
        });
    }
}

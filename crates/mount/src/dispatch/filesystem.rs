//! One method for each request of the kernel. Each method decodes the arguments and calls the
//! operation.

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

use super::Dispatcher;
use super::read_write::{Read, Write};
use super::rename::Rename;
use super::reply::XattrReply;
use crate::connection::{allow_idmapped_mounts, negotiate};
use crate::in_flight::RequestInfo;
use crate::protocol::{Caller, Failure};
use crate::server::{
    EXT4_IOC_SHUTDOWN, FilePosition, MAX_COPY, NewAttributes, NewName, Server, is_report, is_switch, is_sync,
    sets_flags,
};
use crate::threads::Latency;

fn new_name(request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32) -> NewName {
    NewName { parent, name: bytes(name), mode, umask, caller: request.into() }
}

fn bytes(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

/// Returns true if an operation that failed may have changed the file.
fn may_have_changed(failure: &Failure) -> bool {
    ![Errno::EOPNOTSUPP, Errno::EPERM, Errno::EINVAL, Errno::EFBIG].contains(&failure.errno())
}

impl Filesystem for Dispatcher {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let is_coherent = negotiate(config, self.server.options.effective_cache())?;
        self.server.open_files.set_direct_is_coherent(is_coherent);
        if self.server.options.idmap {
            allow_idmapped_mounts(config)?;
        }
        let grain = self.server.time_granularity();
        let refused = |nearest| {
            io::Error::other(format!(
                "the kernel supports a time granularity of {nearest:?}, not of {grain:?}"
            ))
        };
        config.set_time_granularity(grain).map(drop).map_err(refused)
    }

    fn destroy(&mut self) {
        // The order matters: queue threads pass requests to the invalidation threads and to
        // workers, invalidation threads pass them to workers, and all of them use open files.
        self.queue_threads.stop();
        self.deferred.invalidation.join();
        self.workers.join();
        // The last requests may have submitted new ones.
        self.queue_threads.stop();
        self.closer.join();
        self.server.changed_blocks.join();
        self.server.log_refused();
        self.server.shut_down();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = bytes(name);
        self.execute(RequestInfo::new("lookup", parent), reply, move |server| server.lookup(parent, &name));
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        // FORGET does not count as a request, because the kernel sends them in batches, and a
        // thread polls only after a batch. The thread that has read the batch executes it: this
        // never blocks, because the volume deletes removed files in the background.
        self.server.lookup_counts.forget(ino, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.execute(RequestInfo::new("getattr", ino), reply, move |server| server.attributes(ino));
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
        self.execute(RequestInfo::new("setattr", ino), reply, move |server| {
            server.set_attributes(ino, &new, caller)
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.execute(RequestInfo::new("readlink", ino), reply, move |server| server.read_link(ino));
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
        self.execute(RequestInfo::new("mknod", parent), reply, move |server| server.mknod(&new, device));
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
        self.execute(RequestInfo::new("mkdir", parent), reply, move |server| server.mkdir(&new));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = new_name(request, parent, name, 0o777, 0);
        let target = bytes(target.as_os_str());
        self.execute(RequestInfo::new("symlink", parent), reply, move |server| server.symlink(&new, &target));
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, caller) = (bytes(name), request.into());
        self.execute(RequestInfo::new("link", ino), reply, move |server| {
            server.link(ino, parent, &name, caller)
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.execute(RequestInfo::new("unlink", parent), reply, move |server| server.unlink(parent, &name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.execute(RequestInfo::new("rmdir", parent), reply, move |server| server.rmdir(parent, &name));
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
        let names = [(parent, bytes(name)), (new_parent, bytes(new_name))];
        self.execute_rename(Rename { names, flags, caller: request.into() }, reply);
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
        self.execute(RequestInfo::new("create", parent), reply, move |server| server.create(&new, flags));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let caller = request.into();
        self.execute(RequestInfo::new("open", ino), reply, move |server| server.open(ino, flags.0, caller));
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.execute_read(ino, Read::new(FilePosition { handle, offset }, size, flags.0, owner), reply);
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let at = FilePosition { handle, offset };
        self.execute_write(ino, Write::new(at, write_flags, flags.0, request.into()), data, reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // close(2) makes nothing durable. After ENOSYS the kernel sends no further FLUSH.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        // The request stays in flight until the file is dropped, because `remount,rw` waits for all
        // users of the volume.
        let in_flight = self.server.in_flight.add(RequestInfo::new("release", ino));
        // No program waits for this request. The kernel sends up to a thousand of them at once,
        // before the requests of other programs.
        let _scope = self.request_threads.begin_request();
        let open = self.server.open_files.remove(handle);
        reply.ok();
        self.closer.spawn(move || {
            drop(open);
            drop(in_flight);
        });
    }

    fn fsync(&self, _: &Request, ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.execute_sync(ino, handle, data_only, reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Directories need no handle, because they are read by offset. After ENOSYS the kernel
        // sends no further OPENDIR, and caches the listings.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.run(RequestInfo::new("readdir", ino), Latency::Short, move |server| {
            server.read_dir(ino, offset, reply);
        });
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.run(RequestInfo::new("readdirplus", ino), Latency::Short, move |server| {
            server.read_dir_plus(ino, offset, reply);
        });
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // A sync of the root syncs the volume. In Linux, syncfs(2) may return before the kernel has
        // sent the data of its dirty pages.
        let files = if ino == INodeNo::ROOT { self.server.open_files.dirty_pages() } else { Vec::new() };
        let info = RequestInfo::new("fsyncdir", ino);
        self.execute_after_write_back(info, files, reply, move |server| server.sync_dir(ino));
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.execute(RequestInfo::new("statfs", ino), reply, move |server| server.space_at(ino));
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
        let info = RequestInfo::new("setxattr", ino);
        // The write-back of older data would remove the capabilities.
        let waits = name == b"security.capability" && self.server.has_shown_ids();
        let operation = move |server: &Server| server.set_xattr(ino, &name, &value, flags, caller);
        if !waits {
            return self.execute(info, reply, operation);
        }
        let pages = self.server.lookup_counts.kernel_pages(ino).ok();
        self.execute_after_write_back(info, pages, reply, operation);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (info, name) = (RequestInfo::new("getxattr", ino), bytes(name));
        let (reply, caller) = (XattrReply { reply, size }, Caller::from(request));
        if is_switch(ino, &name) {
            return self.execute_switch(info, size, caller, reply);
        }
        if is_report(ino, &name) {
            let requests = self.request_counts();
            return self.execute(info, reply, move |server| server.report(requests, caller));
        }
        if is_sync(&name, caller) {
            let requests = self.request_counts();
            let files = self.server.open_files.dirty_pages();
            let operation = move |server: &Server| server.sync_and_report(requests, caller);
            return self.execute_after_write_back(info, files, reply, operation);
        }
        self.execute(info, reply, move |server| server.xattr(ino, &name));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = request.into();
        self.execute(RequestInfo::new("listxattr", ino), XattrReply { reply, size }, move |server| {
            server.xattr_names(ino, caller)
        });
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, caller) = (bytes(name), request.into());
        self.execute(RequestInfo::new("removexattr", ino), reply, move |server| {
            server.remove_xattr(ino, &name, caller)
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
        if command == EXT4_IOC_SHUTDOWN && caller.administers() {
            return self.execute_shutdown(RequestInfo::new("ioctl", ino), reply, operation);
        }
        let pages = sets_flags(command).then(|| self.server.lookup_counts.kernel_pages(ino).ok()).flatten();
        self.execute_after_write_back(RequestInfo::new("ioctl", ino), pages, reply, operation);
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
        let (at, caller) = (FilePosition { handle, offset }, request.into());
        let deferred = Arc::clone(&self.deferred);
        self.execute_long(RequestInfo::new("fallocate", ino), reply, move |server| {
            server.allocate(at, len, mode, caller).inspect_err(|failure| {
                if may_have_changed(failure) {
                    deferred.drop_changed(handle);
                }
            })
        });
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let at = FilePosition { handle, offset: u64::try_from(offset).unwrap_or(u64::MAX) };
        self.execute_after_write_back(
            RequestInfo::new("lseek", ino),
            self.kernel_pages(handle),
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
        let from = FilePosition { handle: from, offset: from_offset };
        let (to, caller) = (FilePosition { handle: to, offset: to_offset }, request.into());
        // The kernel has written back only the range to copy, so its size of the source may be
        // larger than the volume's.
        let source = self.server.open_file(from.handle).ok();
        let pages = source.filter(|open| from_offset.saturating_add(len) > open.file.size());
        let pages = pages.map(|open| Arc::clone(&open.pages)).filter(|pages| pages.may_be_longer());
        let deferred = Arc::clone(&self.deferred);
        self.execute_after_write_back(
            RequestInfo::new("copy_file_range", ino),
            pages,
            reply,
            move |server| {
                let copied = server.copy(from, to, len, caller);
                let may_have_failed = match &copied {
                    Ok(copied) => u64::from(*copied) < len.min(MAX_COPY),
                    Err(failure) => may_have_changed(failure),
                };
                if may_have_failed {
                    deferred.drop_changed(to.handle);
                }
                copied
            },
        );
    }
}

//! Open files: opening, closing and syncing them, space in them, and where they have data.

use std::sync::Arc;

use fuser::{FileHandle, FopenFlags, INodeNo};
use parext4::{File, InodeFlags, Node};

use crate::attr::Entry;
use crate::caller::Caller;
use crate::failure::{Failure, Outcome};
use crate::handles::OpenFile;
use crate::kernel_pages::KernelPages;
use crate::names::NewName;
use crate::server::Server;

/// An open file, as the kernel learns of it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub handle: FileHandle,
    pub flags: FopenFlags,
}

/// A range of bytes in an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub handle: FileHandle,
    pub offset: u64,
}

/// Bytes copied for one request: no thread is to be gone for long.
const MOST_COPIED: u64 = 16 << 20;
/// Bytes copied at a time.
const COPIED_AT_ONCE: usize = 1 << 20;

impl Server {
    pub fn open(&self, ino: INodeNo, flags: i32, caller: Caller) -> Outcome<Opened> {
        let node = self.node(ino)?;
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let truncates = flags & libc::O_TRUNC != 0;
        if (writable || truncates) && self.volume.stopped().is_some() {
            return Err(Failure::READ_ONLY);
        }
        check_flags(&node, writable && flags & libc::O_APPEND == 0 || truncates, writable)?;
        let file = File::new(node.clone())?;
        if truncates {
            self.drop_privileges(&node, caller)?;
            file.set_len(0)?;
        }
        self.opened(file, flags, caller)
    }

    pub fn create(&self, new: &NewName, flags: i32) -> Outcome<(Entry, Opened)> {
        let node = self.make_file(new)?;
        let file = File::new(node.clone())?;
        let entry = self.tell(&node);
        Ok((entry, self.opened(file, flags, new.caller)?))
    }

    fn opened(&self, file: File, flags: i32, caller: Caller) -> Outcome<Opened> {
        let pages = self.nodes.pages(INodeNo(file.node().ino().get().into()))?;
        let open = OpenFile::new(file, pages, flags, self.options.cache, self.may_use_reserved(caller));
        let mut flags = match open.in_kernel {
            true => FopenFlags::empty(),
            false => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        };
        // Direct writes have the kernel drop the pages that they make stale. Appends do not say which these are.
        flags.set(FopenFlags::FOPEN_KEEP_CACHE, !open.append_only);
        Ok(Opened { handle: self.handles.add(open), flags })
    }

    pub fn release(&self, handle: FileHandle) -> Outcome<()> {
        self.handles.remove(handle);
        Ok(())
    }

    pub fn sync_file(&self, handle: FileHandle, data_only: bool) -> Outcome<()> {
        self.open_file(handle)?.sync(data_only)
    }

    /// Makes a directory durable; with the root all that the server has, as it is not told of syncfs(2).
    pub fn sync_dir(&self, ino: INodeNo) -> Outcome<()> {
        match ino {
            INodeNo::ROOT => Ok(self.volume.sync()?),
            _ => Ok(self.node(ino)?.sync()?),
        }
    }

    pub fn allocate(&self, at: Place, len: u64, mode: i32, caller: Caller) -> Outcome<()> {
        let open = self.open_file(at.handle)?;
        let file = &open.file;
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        check_flags(file.node(), mode & !libc::FALLOC_FL_KEEP_SIZE != 0, true)?;
        self.drop_privileges(file.node(), caller)?;
        // The kernel lets no other modes through.
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Ok(file.allocate(at.offset, len, keep_size)?),
            libc::FALLOC_FL_PUNCH_HOLE => Ok(file.punch_hole(at.offset, len)?),
            libc::FALLOC_FL_ZERO_RANGE => Ok(file.zero_range(at.offset, len, keep_size)?),
            _ => Err(Failure::NOT_SUPPORTED),
        }
    }

    /// Where data or a hole begins at or after an offset. The kernel does not write back by itself before it asks.
    pub fn seek(&self, at: Place, whence: i32) -> Outcome<u64> {
        let open = self.open_file(at.handle)?;
        match whence {
            libc::SEEK_DATA => Ok(open.file.seek_data(at.offset)?),
            libc::SEEK_HOLE => Ok(open.file.seek_hole(at.offset)?),
            _ => Err(Failure::INVALID),
        }
    }

    /// The kernel's pages of a file.
    pub fn pages(&self, node: &Node) -> Option<Arc<KernelPages>> {
        self.nodes.pages(INodeNo(node.ino().get().into())).ok()
    }

    /// Copies up to `len` bytes and returns how many; fewer at the end of the source, or if they are many.
    pub fn copy(&self, from: Place, to: Place, len: u64, caller: Caller) -> Outcome<u32> {
        let (source, target) = (self.open_file(from.handle)?, self.open_file(to.handle)?);
        self.drop_privileges(target.file.node(), caller)?;
        let (source, target) = (source.buffered()?, target.buffered()?);
        let len = len.min(MOST_COPIED);
        let mut buf = vec![0; COPIED_AT_ONCE.min(usize::try_from(len).unwrap_or(COPIED_AT_ONCE))];
        let mut done = 0;
        while done < len {
            let most = buf.len().min(usize::try_from(len - done).unwrap_or(buf.len()));
            let read = source.read_at(&mut buf[..most], from.offset + done)?;
            target.write_at(&buf[..read], to.offset + done)?;
            done += read as u64;
            if read < most {
                break;
            }
        }
        target.file().node().touch_modified()?;
        Ok(u32::try_from(done).unwrap_or(u32::MAX))
    }
}

/// Refuses what `i_flags` forbid: to open a file for writing, to change contents that it has.
pub(crate) fn check_flags(node: &Node, changes_contents: bool, writable: bool) -> Outcome<()> {
    let flags = node.flags();
    let immutable = flags.contains(InodeFlags::IMMUTABLE) && (writable || changes_contents);
    if immutable || flags.contains(InodeFlags::APPEND) && changes_contents {
        return Err(Failure::NOT_PERMITTED);
    }
    Ok(())
}

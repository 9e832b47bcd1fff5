//! Open files: opening, closing and syncing them, space in them, and where they have data.

use fuser::{FileHandle, FopenFlags, INodeNo};
use parext4::{File, InodeFlags, Node};

use crate::attr::Entry;
use crate::failure::{Failure, Outcome};
use crate::handles::OpenFile;
use crate::names::NewName;
use crate::server::{Caller, Server};

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
        check_flags(&node, writable && flags & libc::O_APPEND == 0 || truncates, writable)?;
        let file = File::new((*node).clone())?;
        if truncates {
            file.set_len(0)?;
            self.drop_privileges(&node, !caller.is_root())?;
        }
        Ok(self.opened(file, flags, caller))
    }

    pub fn create(&self, new: &NewName, flags: i32) -> Outcome<(Entry, Opened)> {
        let node = self.make_file(new)?;
        let opened = self.opened(File::new(node.clone())?, flags, new.caller);
        Ok((self.tell(&node), opened))
    }

    fn opened(&self, file: File, flags: i32, caller: Caller) -> Opened {
        let open = OpenFile::new(file, flags, self.options.cache, self.may_use_reserved(caller));
        let flags = match open.in_kernel {
            true => FopenFlags::FOPEN_KEEP_CACHE,
            false => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        };
        Opened { handle: self.handles.add(open), flags }
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
        // The kernel lets no other modes through.
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => file.allocate(at.offset, len, keep_size)?,
            libc::FALLOC_FL_PUNCH_HOLE => file.punch_hole(at.offset, len)?,
            libc::FALLOC_FL_ZERO_RANGE => file.zero_range(at.offset, len, keep_size)?,
            _ => return Err(Failure::NOT_SUPPORTED),
        }
        self.drop_privileges(file.node(), !caller.is_root())
    }

    /// Where data or a hole begins at or behind an offset. The kernel does not write back by itself before it asks.
    pub fn seek(&self, at: Place, whence: i32) -> Outcome<u64> {
        let open = self.open_file(at.handle)?;
        self.have_written_back(open.file.node());
        match whence {
            libc::SEEK_DATA => Ok(open.file.seek_data(at.offset)?),
            libc::SEEK_HOLE => Ok(open.file.seek_hole(at.offset)?),
            _ => Err(Failure::INVALID),
        }
    }

    /// Has the kernel write back what it keeps of a file, and forget it. The requests for that come to other threads.
    pub fn have_written_back(&self, node: &Node) {
        if self.handles.has_writer(node)
            && let Some(notifier) = self.notifier.get()
        {
            // An error means that the kernel does not know the inode, and so has nothing of it.
            let _ = notifier.inval_inode(INodeNo(node.ino().get().into()), 0, 0);
        }
    }

    /// Copies up to `len` bytes and returns how many; fewer at the end of the source, or if they are many.
    pub fn copy(&self, from: Place, to: Place, len: u64, caller: Caller) -> Outcome<u32> {
        let (source, target) = (self.open_file(from.handle)?, self.open_file(to.handle)?);
        // The kernel has written back only what is to be copied, and so may know of a later end of the source.
        if from.offset.saturating_add(len) > source.file.size() {
            self.have_written_back(source.file.node());
        }
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
        self.drop_privileges(target.file().node(), !caller.is_root())?;
        Ok(u32::try_from(done).unwrap_or(u32::MAX))
    }
}

/// Refuses what `i_flags` forbid when a file is opened.
fn check_flags(node: &Node, changes_contents: bool, writable: bool) -> Outcome<()> {
    let flags = node.flags();
    let immutable = flags.contains(InodeFlags::IMMUTABLE) && (writable || changes_contents);
    if immutable || flags.contains(InodeFlags::APPEND) && changes_contents {
        return Err(Failure::NOT_PERMITTED);
    }
    Ok(())
}

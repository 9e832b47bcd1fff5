//! Opens, closes and syncs files, allocates their space, finds their data, and copies ranges.

use std::sync::Arc;

use fuser::{FileHandle, FopenFlags, INodeNo};
use parext4::server::{ServerFile, ServerInode, SpaceWait};
use parext4::{DirectFile, File, FileSize, InodeFlags, InodeRef};

use super::Server;
use super::names::NewName;
use crate::inodes::{OpenFile, ReleasedFile};
use crate::kernel_cache::KernelPages;
use crate::protocol::attr::Entry;
use crate::protocol::{Caller, Failure, Outcome};

/// The handle and the flags of an open file, for the kernel.
#[derive(Debug)]
pub(crate) struct Opened {
    pub handle: FileHandle,
    pub flags: FopenFlags,
}

/// An offset in an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePosition {
    pub handle: FileHandle,
    pub offset: u64,
}

/// Limit of one copy request, in bytes, so that no thread is busy for long.
pub(crate) const MAX_COPY: u64 = 16 << 20;
/// Size of the buffer of a copy, in bytes.
const COPY_BUFFER: usize = 1 << 20;
/// A write that does not fit on the volume as a whole is repeated in pieces that end at multiples
/// of this number of bytes.
pub(crate) const PIECE: usize = 4096;

impl Server {
    /// Opens a file. With `O_TRUNC` the kernel sends a request of its own that truncates it.
    pub fn open(&self, ino: INodeNo, flags: i32, caller: Caller) -> Outcome<Opened> {
        self.check_not_shut_down()?;
        let node = self.inode_ref_for(ino, caller)?;
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if writable && self.volume()?.stopped().is_some() {
            return Err(Failure::READ_ONLY);
        }
        check_flags(&node, writable && flags & libc::O_APPEND == 0, writable)?;
        if writable {
            node.make_room_for_fields();
        }
        self.opened(DirectFile::new(node)?, flags)
    }

    /// Creates a regular file and opens it.
    pub fn create(&self, new: &NewName, flags: i32) -> Outcome<(Entry, Opened)> {
        let (dir, node) = self.create_file(new)?;
        let file = DirectFile::new(node.clone())?;
        let entry = self.entry_in(&dir, &node);
        Ok((entry, self.opened(file, flags)?))
    }

    fn opened(&self, file: DirectFile, flags: i32) -> Outcome<Opened> {
        let pages = self.lookup_counts.kernel_pages(INodeNo(file.inode_ref().ino().get().into()))?;
        let open = self.new_open_file(file, pages, flags);
        let mut flags = match open.bypasses_kernel {
            true => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            false => FopenFlags::empty(),
        };
        // Direct writes make the kernel drop the pages that become stale. For appends the range is
        // not known in advance, so opening the file drops all pages.
        flags.set(FopenFlags::FOPEN_KEEP_CACHE, !open.append_only);
        Ok(Opened { handle: self.open_files.add(open), flags })
    }

    fn new_open_file(&self, file: DirectFile, pages: Arc<KernelPages>, flags: i32) -> OpenFile {
        let is_coherent = self.open_files.direct_is_coherent();
        let (cache, receives_times) = (self.options.effective_cache(), self.options.receives_times());
        OpenFile::new(file, pages, flags, cache, receives_times, is_coherent)
    }

    /// Opens a released file again, in the volume that the mount serves now.
    pub(super) fn reopened(&self, file: &ReleasedFile) -> Outcome<OpenFile> {
        let node = self.volume()?.inode_ref(file.id).map_err(Failure::of_number)?;
        let direct = DirectFile::new(node.with_credentials(file.credentials))?;
        Ok(self.new_open_file(direct, Arc::clone(&file.pages), file.flags))
    }

    /// Makes a file's data durable, and all attributes unless `data_only`. `losses` is the number
    /// of failed write-back requests when the request arrived.
    pub fn sync_file(&self, handle: FileHandle, data_only: bool, losses: u64) -> Outcome<()> {
        self.check_not_shut_down()?;
        let open = self.open_file(handle)?;
        open.pages.forget_reported(losses);
        open.sync(data_only)?;
        if open.pages.losses() == losses {
            // The kernel has reported the loss in an earlier call, because it sends no fsync(2)
            // while it reports one.
            self.refused.forget(open.file.inode_ref().id());
        }
        self.changed_blocks.tell_of(open.pages.ino);
        Ok(())
    }

    /// Makes a directory durable. For the root, makes the whole volume durable, because the server
    /// gets no request for syncfs(2).
    ///
    /// # Errors
    /// For the root, also an error of write-back that has lost data of an open file, see
    /// [`KernelPages::lost`].
    pub fn sync_dir(&self, ino: INodeNo) -> Outcome<()> {
        self.check_not_shut_down()?;
        if ino != INodeNo::ROOT {
            return Ok(self.inode_ref(ino)?.sync()?);
        }
        self.volume()?.sync()?;
        let lost = self.open_files.pages().iter().find_map(|pages| pages.lost());
        lost.map_or(Ok(()), |errno| Err(Failure::new(errno)))
    }

    /// Executes fallocate(2).
    pub fn allocate(&self, at: FilePosition, len: u64, mode: i32, caller: Caller) -> Outcome<()> {
        let open = self.open_file(at.handle)?;
        let file = open.file.clone().with_credentials(self.credentials(caller));
        let range = at.offset..at.offset.saturating_add(len);
        let size = FileSize::kept_if(mode & libc::FALLOC_FL_KEEP_SIZE != 0);
        check_flags(file.inode_ref(), mode & !libc::FALLOC_FL_KEEP_SIZE != 0, true)?;
        self.drop_privileges(file.inode_ref(), caller)?;
        // The kernel passes on no other modes.
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => file.allocate(range, size)?,
            libc::FALLOC_FL_PUNCH_HOLE => file.punch_hole(range)?,
            libc::FALLOC_FL_ZERO_RANGE => file.zero_range(range, size)?,
            _ => return Err(Failure::NOT_SUPPORTED),
        }
        self.after_file_change(&open, open.durability)
    }

    /// Returns where the next data or hole starts, at or after an offset. The kernel does not write
    /// its pages back before this request; the dispatcher makes it do so.
    pub fn seek(&self, at: FilePosition, whence: i32) -> Outcome<u64> {
        let open = self.open_file(at.handle)?;
        match whence {
            libc::SEEK_DATA => Ok(open.file.seek_data(at.offset)?),
            libc::SEEK_HOLE => Ok(open.file.seek_hole(at.offset)?),
            _ => Err(Failure::INVALID),
        }
    }

    /// Returns the record of the kernel's pages of a file.
    pub fn kernel_pages(&self, node: &InodeRef) -> Option<Arc<KernelPages>> {
        self.lookup_counts.kernel_pages(INodeNo(node.ino().get().into())).ok()
    }

    /// Copies up to `len` bytes and returns the number of bytes copied. They are fewer at the end
    /// of the source, above [`MAX_COPY`], or if a part after the first fails, which may have been
    /// written in part.
    ///
    /// # Errors
    /// If nothing was copied. `EPERM` if the target is immutable, or append-only: the copy has an
    /// offset, which may be before the end.
    pub fn copy(&self, from: FilePosition, to: FilePosition, len: u64, caller: Caller) -> Outcome<u32> {
        let (from_open, to_open) = (self.open_file(from.handle)?, self.open_file(to.handle)?);
        check_flags(to_open.file.inode_ref(), to_open.append_only, true)?;
        let (source, target) = (from_open.buffered()?, to_open.buffered_for(self.credentials(caller))?);
        let copied =
            self.copy_data((source, from.offset), (&target, to.offset), len.min(MAX_COPY), caller)?;
        self.after_file_change(&to_open, to_open.durability)?;
        Ok(u32::try_from(copied).unwrap_or(u32::MAX))
    }

    /// Copies up to `len` bytes and returns the number of bytes copied. After an error the kernel
    /// would keep the old size and pages of the target, so an error is returned only if nothing was
    /// copied.
    fn copy_data(
        &self,
        (source, from): (&File, u64),
        (target, to): (&File, u64),
        len: u64,
        caller: Caller,
    ) -> Outcome<u64> {
        let mut buf = vec![0; COPY_BUFFER.min(usize::try_from(len).unwrap_or(COPY_BUFFER))];
        let mut done = 0;
        while done < len {
            let wanted = buf.len().min(usize::try_from(len - done).unwrap_or(buf.len()));
            let read = source.read_at(&mut buf[..wanted], from + done).map_err(Failure::from);
            let written = read.and_then(|read| {
                if done == 0 && read > 0 {
                    // As in the kernel, this happens even if none of the data then finds space.
                    self.drop_privileges(target.inode_ref(), caller)?;
                    target.inode_ref().touch_modified()?;
                }
                write_what_fits(target, &buf[..read], to + done, false)
            });
            let copied = match written {
                Ok(copied) => copied,
                Err(failure) if done == 0 => return Err(failure),
                // The caller gets no error.
                Err(failure) => self.handle_corruption(Err(failure)).unwrap_or(0),
            };
            done += copied as u64;
            if copied < wanted {
                break;
            }
        }
        Ok(done)
    }
}

/// Writes through the volume's page cache, and returns the number of bytes written: fewer than
/// `data` has if the volume is full or a limit of a quota is reached. With `skips`, the pieces
/// after one that does not fit are written, too, but the result is then an error. All pieces share
/// one wait for space.
///
/// # Errors
/// `ENOSPC` or `EDQUOT` if nothing was written, and with `skips` if any piece was not written. Any
/// other error of a piece.
pub(crate) fn write_what_fits(file: &File, data: &[u8], offset: u64, skips: bool) -> Outcome<usize> {
    let skew = usize::try_from(offset % PIECE as u64).unwrap_or(0);
    let (mut done, mut next, mut full) = (0, data.len(), None);
    let mut wait = SpaceWait::new();
    while done < data.len() {
        let at = offset + done as u64;
        match file.write_all_at_waiting(&data[done..next], at, &mut wait).map_err(Failure::from) {
            Ok(()) => done = next,
            Err(failure) if !failure.lacks_space() => return Err(failure),
            Err(_) if done == 0 && next == data.len() && next > PIECE => {}
            Err(failure) if skips => (done, full) = (next, Some(failure)),
            Err(_) if done > 0 => break,
            Err(failure) => return Err(failure),
        }
        next = data.len().min((skew + done) / PIECE * PIECE + PIECE - skew);
    }
    full.map_or(Ok(done), Err)
}

/// Fails if the inode's flags forbid to open it for writing, or to change its old contents.
pub(super) fn check_flags(node: &InodeRef, changes_contents: bool, writable: bool) -> Outcome<()> {
    let flags = node.flags();
    let fixed = flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::VERITY);
    let immutable = fixed && (writable || changes_contents);
    if immutable || flags.contains(InodeFlags::APPEND) && changes_contents {
        return Err(Failure::NOT_PERMITTED);
    }
    Ok(())
}

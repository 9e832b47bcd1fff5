//! A file that the kernel has open in each way, of its own ext4 or of a mount of parext4, and
//! operations on it.

use std::fs::File;
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use parext4::device::AlignedBuf;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use super::content::{Content, index};
use super::file_op::{FileOp, Outcome, Way};

/// Alignment of direct requests in memory, in bytes.
const ALIGNMENT: usize = 4096;
const SECTOR: usize = 512;

/// The handles of a file.
pub struct KernelFile {
    /// For operations through the page cache, and for operations that change no data.
    pub buffered: File,
    direct: File,
    appending: File,
    appending_direct: File,
}

impl KernelFile {
    /// Opens a file, which is created if it does not exist.
    ///
    /// # Errors
    /// The errors of open(2).
    pub fn open(path: &Path) -> Result<Self> {
        let open = |append: bool, flags: OFlags| {
            let flags = i32::try_from(flags.bits()).expect("positive");
            let mut options = File::options();
            options.read(true).write(!append).append(append).create(true).custom_flags(flags).open(path)
        };
        Ok(Self {
            buffered: open(false, OFlags::empty())?,
            direct: open(false, OFlags::DIRECT)?,
            appending: open(true, OFlags::empty())?,
            appending_direct: open(true, OFlags::DIRECT)?,
        })
    }

    fn way(&self, way: Way) -> &File {
        if way.is_direct() { &self.direct } else { &self.buffered }
    }

    /// Runs an operation that writes `content`. Direct operations must be of
    /// [whole sectors](FileOp::in_whole_sectors).
    ///
    /// # Errors
    /// The errors of the call.
    pub fn run(&self, op: FileOp, content: Content) -> Result<Outcome> {
        let kept = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let (flags, offset, len) = match op {
            FileOp::Read { way, offset, len } => return self.read(way, offset, len).map(Outcome::Read),
            FileOp::Write { way, offset, len } => {
                let data = aligned(content, offset, len);
                let file = self.way(way);
                file.write_all_at(&data[..index(len)], offset)?;
                if way == Way::Synced {
                    file.sync_data()?;
                }
                return Ok(Outcome::Done);
            }
            FileOp::Append { way, len } => return self.append(way, content, len).map(Outcome::Appended),
            FileOp::SetLen { size } => return self.buffered.set_len(size).map(|()| Outcome::Done),
            FileOp::SyncRange { .. } => return self.buffered.sync_data().map(|()| Outcome::Done),
            FileOp::SyncData { way } => return self.way(way).sync_data().map(|()| Outcome::Done),
            FileOp::SyncAll { way } => return self.way(way).sync_all().map(|()| Outcome::Done),
            FileOp::Seek { offset } => return self.seek(offset).map(Outcome::Found),
            FileOp::Allocate { offset, len, keep_size } => (kept(keep_size), offset, len),
            FileOp::PunchHole { offset, len } => (FallocateFlags::PUNCH_HOLE | kept(true), offset, len),
            FileOp::ZeroRange { offset, len, keep_size } => {
                (FallocateFlags::ZERO_RANGE | kept(keep_size), offset, len)
            }
            FileOp::CollapseRange { offset, len } => (FallocateFlags::COLLAPSE_RANGE, offset, len),
            FileOp::InsertRange { offset, len } => (FallocateFlags::INSERT_RANGE, offset, len),
        };
        fallocate(&self.buffered, flags, offset, len)?;
        Ok(Outcome::Done)
    }

    fn read(&self, way: Way, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut buf = AlignedBuf::zeroed(index(len).next_multiple_of(ALIGNMENT));
        let buf = &mut buf[..index(len)];
        buf.fill(0xee);
        let mut count = 0;
        while count < buf.len() {
            let read = self.way(way).read_at(&mut buf[count..], offset + count as u64)?;
            count += read;
            // Only at the end of the file is a transfer shorter than a sector.
            if read == 0 || way.is_direct() && !read.is_multiple_of(SECTOR) {
                break;
            }
        }
        Ok(buf[..count].to_vec())
    }

    fn append(&self, way: Way, content: Content, len: u64) -> Result<u64> {
        let at = self.buffered.metadata()?.len();
        let data = aligned(content, at, len);
        let mut file = if way.is_direct() { &self.appending_direct } else { &self.appending };
        file.write_all(&data[..index(len)])?;
        if way == Way::Synced {
            file.sync_data()?;
        }
        Ok(at)
    }

    fn seek(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        match seek(&self.buffered, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(data) => Ok(Some((data, seek(&self.buffered, SeekFrom::Hole(data))?))),
        }
    }

    /// Returns all ranges of data, as seeks find them.
    ///
    /// # Errors
    /// The errors of the seeks.
    pub fn data(&self) -> Result<Vec<(u64, u64)>> {
        let (mut ranges, mut at) = (Vec::new(), 0);
        while let Some((start, end)) = self.seek(at)? {
            ranges.push((start, end));
            at = end;
        }
        Ok(ranges)
    }
}

/// Returns at least `len` bytes to write at `offset`, in memory aligned for direct requests.
fn aligned(content: Content, offset: u64, len: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(index(len).next_multiple_of(ALIGNMENT));
    content.fill(&mut buf[..index(len)], offset);
    buf
}

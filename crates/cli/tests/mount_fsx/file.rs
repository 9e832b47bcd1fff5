//! The file and its model.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use parext4::device::AlignedBuf;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use crate::mapping::Mapping;
use testkit::file_model::{FileModel, fill, index};
use testkit::file_op::{MAX_SIZE, Op, Shape, Way};
use testkit::fuse_mount::FuseMount;

/// Number of last operations that a failure prints.
const SHOWN: usize = 40;
/// Alignment of direct requests, in bytes.
const SECTOR: u64 = 512;

/// A file, its expected contents, and its last operations.
pub struct FileUnderTest {
    fuse: FuseMount,
    options: String,
    block_size: u64,
    open: Option<Open>,
    model: FileModel,
    last: VecDeque<(u64, Op, bool)>,
    counts: Counts,
}

/// An operation that was done.
#[derive(Default)]
struct Counts {
    operations: u64,
    mapped: u64,
    unsupported: u64,
}

/// All handles of the file.
struct Open {
    cached: [File; 2],
    direct: [File; 2],
    mapping: Mapping,
}

/// Index of the handles for writes at any offset, and of the append handles.
const ANYWHERE: usize = 0;
const AT_THE_END: usize = 1;

impl Open {
    /// Opens the file, and creates it if it does not exist. Does not truncate it.
    fn new(path: PathBuf) -> Result<Self> {
        let open = |append: bool, flags: OFlags| {
            let flags = i32::try_from(flags.bits()).unwrap();
            let mut options = File::options();
            options.read(true).write(!append).append(append).create(true).custom_flags(flags).open(&path)
        };
        let cached = [open(false, OFlags::empty())?, open(true, OFlags::empty())?];
        let direct = [open(false, OFlags::DIRECT)?, open(true, OFlags::DIRECT)?];
        let size = cached[ANYWHERE].metadata()?.len();
        cached[ANYWHERE].set_len(MAX_SIZE)?;
        let mapping = Mapping::new(&path, MAX_SIZE);
        cached[ANYWHERE].set_len(size)?;
        Ok(Self { cached, direct, mapping })
    }

    fn way(&self, way: Way) -> &File {
        match way {
            Way::Buffered => &self.cached[ANYWHERE],
            Way::Direct => &self.direct[ANYWHERE],
        }
    }
}

impl FileUnderTest {
    pub fn new(fuse: FuseMount, options: &str, block_size: u64) -> Self {
        let mut tested = Self {
            fuse,
            options: options.to_owned(),
            block_size,
            open: None,
            model: FileModel::default(),
            last: VecDeque::new(),
            counts: Counts::default(),
        };
        tested.open();
        tested
    }

    fn open(&mut self) {
        self.fuse.mount(&self.options);
        self.open = Some(Open::new(self.fuse.path("file")).unwrap());
    }

    fn ways(&self) -> &Open {
        self.open.as_ref().unwrap()
    }

    fn file(&self) -> &File {
        self.ways().way(Way::Buffered)
    }

    pub fn shape(&self) -> Shape {
        self.model.shape(self.block_size)
    }

    /// Runs an operation on the file and on the model. If `mapped`, buffered reads and writes
    /// within the file use the mapping.
    pub fn apply(&mut self, nth: u64, op: Op, mapped: bool) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back((nth, op, mapped));
        self.counts.operations += 1;
        let done =
            if mapped && self.is_mappable(op) { self.apply_mapped(nth, op) } else { self.try_apply(nth, op) };
        if let Err(error) = done {
            self.fail(&error.to_string());
        }
        let size = self.file().metadata().unwrap().len();
        if size != self.model.size() {
            self.fail(&format!("the size is {size}, not {}", self.model.size()));
        }
    }

    fn is_mappable(&self, op: Op) -> bool {
        match op {
            Op::Read { way: Way::Buffered, offset, len } | Op::Write { way: Way::Buffered, offset, len } => {
                offset + len <= self.model.size()
            }
            Op::SyncRange { .. } => true,
            _ => false,
        }
    }

    fn apply_mapped(&mut self, nth: u64, op: Op) -> Result<()> {
        self.counts.mapped += 1;
        let mapping = &mut self.open.as_mut().unwrap().mapping;
        match op {
            Op::Read { offset, len, .. } => {
                let seen = mapping.read(offset, len);
                self.compare("mapped", &seen, offset, len);
            }
            Op::Write { offset, len, .. } => {
                let data = data(nth, len);
                mapping.write(offset, &data);
                self.model.store(offset, &data);
            }
            _ => mapping.sync(),
        }
        Ok(())
    }

    fn try_apply(&mut self, nth: u64, op: Op) -> Result<()> {
        match op {
            Op::Read { way, offset, len } => self.read(way, offset, len)?,
            Op::Write { way, offset, len } => {
                let (offset, len) = rounded(way, offset, len);
                let data = data(nth, len);
                self.ways().way(way).write_all_at(&data, offset)?;
                self.model.store(offset, &data);
            }
            Op::Append { way, len } => {
                let data = data(nth, rounded(way, 0, len).1);
                let files = if way == Way::Buffered { &self.ways().cached } else { &self.ways().direct };
                (&files[AT_THE_END]).write_all(&data)?;
                self.model.store(self.model.size(), &data);
            }
            Op::SetLen { size } => self.file().set_len(size)?,
            Op::Allocate { offset, len, keep_size } => {
                self.allocate(FallocateFlags::empty(), offset, len, keep_size)?;
            }
            Op::PunchHole { offset, len } => self.allocate(FallocateFlags::PUNCH_HOLE, offset, len, true)?,
            Op::ZeroRange { offset, len, keep_size } => {
                self.allocate(FallocateFlags::ZERO_RANGE, offset, len, keep_size)?;
            }
            Op::CollapseRange { offset, len } => {
                if !self.shift(FallocateFlags::COLLAPSE_RANGE, offset, len)? {
                    return Ok(());
                }
            }
            Op::InsertRange { offset, len } => {
                if !self.shift(FallocateFlags::INSERT_RANGE, offset, len)? {
                    return Ok(());
                }
            }
            Op::SyncRange { .. } => self.file().sync_data()?,
            Op::SyncData { way } => self.ways().way(way).sync_data()?,
            Op::SyncAll { way } => self.ways().way(way).sync_all()?,
            Op::Seek { offset } => self.seek(offset)?,
        }
        self.model.apply(op);
        Ok(())
    }

    fn allocate(&self, mode: FallocateFlags, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let keep_size = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        Ok(fallocate(self.file(), mode | keep_size, offset, len)?)
    }

    /// Returns true if FUSE has a request for the operation. Counts the operation as unsupported
    /// otherwise.
    fn shift(&mut self, mode: FallocateFlags, offset: u64, len: u64) -> Result<bool> {
        match fallocate(self.file(), mode, offset, len) {
            Err(Errno::OPNOTSUPP) => {
                self.counts.unsupported += 1;
                Ok(false)
            }
            result => Ok(result.map(|()| true)?),
        }
    }

    fn read(&self, way: Way, offset: u64, len: u64) -> Result<()> {
        let (offset, len) = rounded(way, offset, len);
        let mut buf = AlignedBuf::zeroed(index(len).next_multiple_of(4096));
        let buf = &mut buf[..index(len)];
        buf.fill(0xee);
        let mut count = 0;
        while count < buf.len() {
            // Only at the end of the file is a transfer shorter than a sector.
            match self.ways().way(way).read_at(&mut buf[count..], offset + count as u64)? {
                0 => break,
                read if way == Way::Direct && !(read as u64).is_multiple_of(SECTOR) => {
                    count += read;
                    break;
                }
                read => count += read,
            }
        }
        self.compare(&format!("{way:?}"), &buf[..count], offset, len);
        Ok(())
    }

    /// Compares data that was read with the model.
    fn compare(&self, way: &str, seen: &[u8], offset: u64, len: u64) {
        let compared = self.model.compare(seen, offset, len);
        compared.unwrap_or_else(|error| self.fail(&format!("{way}: {error}")));
    }

    /// Checks that holes are zeros in the model, and that holes and data alternate.
    fn seek(&self, offset: u64) -> Result<()> {
        let checked = match seek(self.file(), SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => self.model.check_no_data(offset),
            data => {
                let data = data?;
                self.model.check_data_and_hole(offset, data, seek(self.file(), SeekFrom::Hole(data))?)
            }
        };
        checked.unwrap_or_else(|error| self.fail(&error));
        Ok(())
    }

    /// Compares the whole file with the model, through each handle.
    pub fn check_all(&mut self) {
        for way in [Way::Buffered, Way::Direct] {
            if let Err(error) = self.read(way, 0, MAX_SIZE) {
                self.fail(&format!("{way:?}: {error}"));
            }
        }
        let size = self.model.size();
        let seen = self.open.as_mut().unwrap().mapping.read(0, size);
        self.compare("mapped", &seen, 0, size);
    }

    /// Unmounts, runs e2fsck, and mounts again.
    pub fn reopen(&mut self) {
        self.shut();
        self.open();
        self.check_all();
    }

    /// Checks the file once more, unmounts, and returns a summary of the operations.
    pub fn close(mut self) -> String {
        self.check_all();
        self.reopen();
        self.shut();
        let Counts { operations, mapped, unsupported } = self.counts;
        format!(
            "{operations} operations, {mapped} of them mapped; {unsupported} that FUSE has no request for"
        )
    }

    fn shut(&mut self) {
        self.open = None;
        self.fuse.umount();
        self.fuse.scratch().fsck();
    }

    fn fail(&self, why: &str) -> ! {
        for (nth, op, mapped) in &self.last {
            eprintln!("{nth}: {op:?}{}", if *mapped { ", mapped if it can be" } else { "" });
        }
        panic!("{}, blocks of {}: {why}", self.options, self.block_size);
    }
}

/// Rounds a direct request to whole sectors.
fn rounded(way: Way, offset: u64, len: u64) -> (u64, u64) {
    match way {
        Way::Buffered => (offset, len),
        Way::Direct => {
            let start = offset - offset % SECTOR;
            (start, (offset + len).next_multiple_of(SECTOR) - start)
        }
    }
}

/// Returns the data of an operation, in memory aligned for direct I/O.
fn data(nth: u64, len: u64) -> impl std::ops::Deref<Target = [u8]> {
    let mut buf = AlignedBuf::zeroed(index(len).next_multiple_of(4096));
    fill(&mut buf[..index(len)], nth);
    Prefix { buf, len: index(len) }
}

/// The first bytes of a buffer.
struct Prefix {
    buf: AlignedBuf,
    len: usize,
}

impl std::ops::Deref for Prefix {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

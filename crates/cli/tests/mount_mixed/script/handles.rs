//! Runs steps on one side.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use parext4::device::AlignedBuf;
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, SeekFrom, Uid, XattrFlags, chmod,
    chownat, copy_file_range, fadvise, fallocate, fdatasync, fsync, ftruncate, ioctl_getflags,
    ioctl_setflags, lgetxattr, linkat, llistxattr, lremovexattr, lsetxattr, open, rename, renameat_with,
    seek, syncfs, unlink,
};
use rustix::io::{Errno, pread, pwrite};

use testkit::access_list::{GROUP, MASK, OTHER, OWNER, USER, access_list};

use super::op::{Allocation, FILES, Flags, Op, SLOTS, Step};
use crate::engines::{Engine, Kind, Transfer};
use crate::mapping::Mapping;
use crate::users::User;

/// The result of an operation.
pub type Outcome = Result<Value, Errno>;

#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    Done,
    Number(u64),
    Bytes(Vec<u8>),
    Text(String),
    /// By transfer in the order of submission: bytes or a negative error number, and the data of a
    /// read.
    Reaped(Vec<(i64, Vec<u8>)>),
}

/// Formats the beginning of a buffer.
impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = |bytes: &[u8]| format!("{} bytes {:02x?}...", bytes.len(), &bytes[..bytes.len().min(8)]);
        match self {
            Self::Done => f.write_str("done"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Bytes(data) => f.write_str(&bytes(data)),
            Self::Text(text) => f.write_str(text),
            Self::Reaped(all) => {
                f.debug_list().entries(all.iter().map(|(result, data)| (result, bytes(data)))).finish()
            }
        }
    }
}

struct Open {
    file: Arc<File>,
    map: Option<Mapping>,
}

/// The handles of a side.
pub struct Handles {
    dir: PathBuf,
    slots: [Option<Open>; SLOTS],
    aio: Engine,
    ring: Engine,
    user: Option<User>,
    next: u64,
    /// Refused at submission.
    refused: Vec<(u64, i64)>,
}

impl Handles {
    /// Makes the files.
    pub fn new(dir: PathBuf) -> Self {
        User::Owner.enter();
        let engine = |kind| Engine::new(kind, 64).unwrap();
        let (aio, ring) = (engine(Kind::Aio), engine(Kind::Ring));
        let slots = std::array::from_fn(|_| None);
        let handles = Self { dir, slots, aio, ring, user: Some(User::Owner), next: 0, refused: Vec::new() };
        (0..FILES).for_each(|file| handles.make(file).unwrap());
        handles
    }

    fn path(&self, file: usize) -> PathBuf {
        self.dir.join(format!("file{file}"))
    }

    fn make(&self, file: usize) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(0o666);
        open(self.path(file), OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode).map(drop)
    }

    /// Returns the current size of the file with a name.
    pub fn size(&self, file: usize) -> u64 {
        std::fs::metadata(self.path(file)).map_or(0, |metadata| metadata.len())
    }

    /// Describes the file with a name, without times; if `with_blocks`, with its space.
    pub fn describe(&self, file: usize) -> String {
        match std::fs::metadata(self.path(file)) {
            Ok(found) => format!(
                "mode {:o}, owner {}:{}, {} links, {} bytes",
                found.mode(),
                found.uid(),
                found.gid(),
                found.nlink(),
                found.len()
            ),
            Err(error) => error.to_string(),
        }
    }

    /// Like `describe`, for the file of a handle.
    pub fn describe_open(&self, slot: usize) -> String {
        let Some(open) = &self.slots[slot] else { return String::new() };
        let found = open.file.metadata().unwrap();
        format!("mode {:o}, {} links, {} bytes", found.mode(), found.nlink(), found.len())
    }

    /// Returns the contents of the file with a name, read by direct I/O if `direct`.
    pub fn contents(&mut self, file: usize, direct: bool) -> Outcome {
        self.become_user(User::Root);
        let flags = OFlags::RDONLY | if direct { OFlags::DIRECT } else { OFlags::empty() };
        let file = open(self.path(file), flags, Mode::empty())?;
        let mut buf = AlignedBuf::zeroed(1 << 20);
        let mut count = 0;
        loop {
            let read = pread(&file, &mut buf[count..], count as u64)?;
            count += read;
            if read == 0 || direct && !read.is_multiple_of(512) {
                return Ok(Value::Bytes(buf[..count].to_vec()));
            }
        }
    }

    /// Returns the contents of a handle's file.
    pub fn contents_of(&mut self, slot: usize) -> Outcome {
        self.become_user(User::Root);
        let file = File::open(format!("/proc/self/fd/{}", self.file(slot)?.as_raw_fd()));
        let mut bytes = Vec::new();
        file.and_then(|mut file| file.read_to_end(&mut bytes)).expect("root may read");
        Ok(Value::Bytes(bytes))
    }

    fn become_user(&mut self, user: User) {
        if self.user != Some(user) {
            user.enter();
            self.user = Some(user);
        }
    }

    /// Runs a step. Its data differs by `nth`.
    pub fn run(&mut self, nth: u64, step: &Step) -> Outcome {
        self.become_user(step.user);
        self.try_run(nth, &step.op)
    }

    fn slot(&self, slot: usize) -> Result<&Open, Errno> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    fn file(&self, slot: usize) -> Result<&File, Errno> {
        Ok(&self.slot(slot)?.file)
    }

    fn mapping(&self, slot: usize) -> Result<&Mapping, Errno> {
        self.slot(slot)?.map.as_ref().ok_or(Errno::BADF)
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn try_run(&mut self, nth: u64, op: &Op) -> Outcome {
        let done = |()| Value::Done;
        let number = |number: usize| Value::Number(number as u64);
        match *op {
            Op::Open { slot, file, flags } => self.open(slot, file, flags).map(done),
            Op::Close { slot } => {
                self.slots[slot] = None;
                Ok(Value::Done)
            }
            Op::Read { slot, offset, len } => {
                let mut buf = buffer(len);
                let read = pread(self.file(slot)?, &mut buf[..at(len)], offset)?;
                Ok(Value::Bytes(buf[..read].to_vec()))
            }
            Op::Write { slot, offset, len } => {
                pwrite(self.file(slot)?, &data(nth, offset, len)[..at(len)], offset).map(number)
            }
            Op::Submit { slot, engine, writes, offset, len } => {
                self.submit(nth, slot, engine, writes, offset, len)
            }
            Op::Reap => self.reap(),
            Op::Map { slot, len, writable } => self.map(slot, len, writable).map(done),
            Op::Unmap { slot } => {
                self.slots[slot].as_mut().ok_or(Errno::BADF)?.map = None;
                Ok(Value::Done)
            }
            Op::MapRead { slot, offset, len } => {
                self.mapping(slot)?.read(at(offset), at(len)).map(Value::Bytes)
            }
            Op::MapWrite { slot, offset, len } => {
                self.mapping(slot)?.write(at(offset), &data(nth, offset, len)[..at(len)]).map(done)
            }
            Op::MapSync { slot } => self.mapping(slot)?.sync().map(done),
            Op::SeekData { slot, offset } => {
                seek(self.file(slot)?, SeekFrom::Data(offset)).map(Value::Number)
            }
            Op::SeekHole { slot, offset } => {
                seek(self.file(slot)?, SeekFrom::Hole(offset)).map(Value::Number)
            }
            Op::Allocate { slot, what, offset, len } => {
                fallocate(self.file(slot)?, allocation(what), offset, len).map(done)
            }
            Op::SetLen { slot, size } => ftruncate(self.file(slot)?, size).map(done),
            Op::SetLenByName { file, size } => {
                let size = size.cast_signed();
                let result = nix::unistd::truncate(&self.path(file), size);
                result.map(done).map_err(|error| Errno::from_raw_os_error(error as i32))
            }
            Op::Copy { from, mut from_offset, to, mut to_offset, len } => {
                let (from, to) = (self.file(from)?, self.file(to)?);
                copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), at(len)).map(number)
            }
            Op::SetFlags { slot, flags } => {
                let file = self.file(slot)?;
                // Bits that the kernel sets by itself are unchanged.
                let kept = ioctl_getflags(file)? & rustix::fs::IFlags::from_bits_retain(0x0008_0000);
                ioctl_setflags(file, kept | flags).map(done)
            }
            Op::Flags { slot } => {
                ioctl_getflags(self.file(slot)?).map(|flags| Value::Number(flags.bits().into()))
            }
            Op::SetAttribute { file, name, len } => {
                let value = vec![u8::try_from(nth % 251).unwrap(); len];
                lsetxattr(self.path(file), name, &value, XattrFlags::empty()).map(done)
            }
            Op::Attribute { file, name } => {
                let mut value = vec![0; 1024];
                let len = lgetxattr(self.path(file), name, &mut value[..])?;
                Ok(Value::Bytes(value[..len].to_vec()))
            }
            Op::Attributes { file } => self.attributes(file),
            Op::RemoveAttribute { file, name } => lremovexattr(self.path(file), name).map(done),
            Op::SetAcl { file, group, other_user, mask } => {
                let value = acl(group, other_user, mask);
                lsetxattr(self.path(file), "system.posix_acl_access", &value, XattrFlags::empty()).map(done)
            }
            Op::SetMode { file, mode } => chmod(self.path(file), Mode::from_raw_mode(mode)).map(done),
            Op::SetOwner { file, owner } => {
                let (uid, gid) = (Uid::from_raw(owner.id()), Gid::from_raw(owner.id()));
                chownat(CWD, self.path(file), Some(uid), Some(gid), AtFlags::empty()).map(done)
            }
            Op::Sync { slot, data_only: true } => fdatasync(self.file(slot)?).map(done),
            Op::Sync { slot, data_only: false } => fsync(self.file(slot)?).map(done),
            Op::SyncVolume { slot } => syncfs(self.file(slot)?).map(done),
            Op::Forget { slot, offset, len } => {
                let len = std::num::NonZero::new(len);
                fadvise(self.file(slot)?, offset, len, Advice::DontNeed).map(done)
            }
            Op::LinkAndUnlink { file } => {
                let other = self.dir.join("another");
                linkat(CWD, self.path(file), CWD, &other, AtFlags::empty())?;
                unlink(other).map(done)
            }
            Op::Rename { file } => {
                let (path, other) = (self.path(file), self.dir.join("another"));
                rename(&path, &other)?;
                rename(other, path).map(done)
            }
            Op::RenameOver { file, exchange } => self.rename_over(file, exchange).map(done),
            Op::Replace { file } => {
                unlink(self.path(file))?;
                self.make(file).map(done)
            }
        }
    }

    fn open(&mut self, slot: usize, file: usize, flags: Flags) -> Result<(), Errno> {
        let mut open_flags = match (flags.reads, flags.writes) {
            (true, false) => OFlags::RDONLY,
            (false, _) => OFlags::WRONLY,
            (true, true) => OFlags::RDWR,
        };
        for (flag, is_set) in [
            (OFlags::DIRECT, flags.direct),
            (OFlags::APPEND, flags.append),
            (OFlags::TRUNC, flags.truncate),
            (OFlags::SYNC, flags.sync),
        ] {
            open_flags.set(flag, is_set);
        }
        let file = Arc::new(File::from(open(self.path(file), open_flags, Mode::empty())?));
        self.slots[slot] = Some(Open { file, map: None });
        Ok(())
    }

    fn rename_over(&self, file: usize, exchange: bool) -> Result<(), Errno> {
        let (path, other) = (self.path(file), self.dir.join("another"));
        let mode = Mode::from_raw_mode(0o666);
        open(&other, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode)?;
        let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
        let renamed = renameat_with(CWD, &other, CWD, &path, flags);
        // The new file if the rename failed, the old one after an exchange.
        let removed = unlink(&other);
        renamed?;
        if exchange { removed } else { Ok(()) }
    }

    /// Closes all handles.
    pub fn close_all(&mut self) {
        self.slots = std::array::from_fn(|_| None);
    }

    fn map(&mut self, slot: usize, len: u64, writable: bool) -> Result<(), Errno> {
        let open = self.slots[slot].as_mut().ok_or(Errno::BADF)?;
        open.map = None;
        open.map = Some(Mapping::new(&open.file, at(len), writable)?);
        Ok(())
    }

    fn submit(
        &mut self,
        nth: u64,
        slot: usize,
        engine: Kind,
        writes: bool,
        offset: u64,
        len: u64,
    ) -> Outcome {
        let file = Arc::clone(&self.slot(slot)?.file);
        let buf = if writes { data(nth, offset, len) } else { buffer(len) };
        let engine = match engine {
            Kind::Aio => &mut self.aio,
            Kind::Ring => &mut self.ring,
        };
        let id = self.next;
        self.next += 1;
        if let Err(refused) = engine.submit(id, Transfer { file, writes, offset, buf, len: at(len) }) {
            self.refused.push((id, refused.result));
        }
        Ok(Value::Done)
    }

    fn reap(&mut self) -> Outcome {
        let mut all: Vec<_> = std::mem::take(&mut self.refused)
            .into_iter()
            .map(|(id, result)| (id, result, Vec::new()))
            .collect();
        for engine in [&mut self.aio, &mut self.ring] {
            while engine.under_way() > 0 {
                for done in engine.reap(1).unwrap() {
                    let read =
                        if done.transfer.writes { 0 } else { usize::try_from(done.result).unwrap_or(0) };
                    all.push((done.id, done.result, done.transfer.buf[..read].to_vec()));
                }
            }
        }
        all.sort_by_key(|(id, ..)| *id);
        Ok(Value::Reaped(all.into_iter().map(|(_, result, data)| (result, data)).collect()))
    }

    fn attributes(&self, file: usize) -> Outcome {
        let mut names = vec![0; 4096];
        let len = llistxattr(self.path(file), &mut names[..])?;
        let mut names: Vec<_> = names[..len].split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
        names.sort();
        Ok(Value::Text(names.join(" ")))
    }
}

fn allocation(what: Allocation) -> FallocateFlags {
    match what {
        Allocation::Plain => FallocateFlags::empty(),
        Allocation::KeepSize => FallocateFlags::KEEP_SIZE,
        Allocation::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        Allocation::Zero => FallocateFlags::ZERO_RANGE,
        Allocation::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
    }
}

fn acl(group: u16, other_user: u16, mask: u16) -> Vec<u8> {
    let entries = [(OWNER, 6), (USER, other_user), (GROUP, group), (MASK, mask), (OTHER, 6)];
    access_list(User::Stranger.id(), &entries)
}

fn buffer(len: u64) -> AlignedBuf {
    AlignedBuf::zeroed(at(len).next_multiple_of(4096).max(4096))
}

/// Returns bytes that differ by offset and by step, and are never 0.
fn data(nth: u64, offset: u64, len: u64) -> AlignedBuf {
    let mut buf = buffer(len);
    for (place, byte) in (offset..offset + len).zip(buf.iter_mut()) {
        *byte = u8::try_from((nth * 31 + place / 512 * 7 + place) % 251).unwrap() + 1;
    }
    buf
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

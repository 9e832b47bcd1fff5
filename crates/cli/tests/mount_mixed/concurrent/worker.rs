//! One thread of a run.

mod own_file;

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parext4::device::AlignedBuf;
use rustix::fs::{
    Advice, FallocateFlags, IFlags, SeekFrom, XattrFlags, copy_file_range, fadvise, fallocate, fdatasync,
    fgetxattr, fsetxattr, fsync, ftruncate, ioctl_getflags, ioctl_setflags, seek,
};
use rustix::io::{Errno, pread, pwrite};
use testkit::rng::Rng;
use testkit::sector::SECTOR;
use testkit::slowest;

use super::TestRun;
use super::versions::{Oldest, Versions};
use crate::engines::{Done, Engine, Kind, Transfer};
use crate::mapping::Mapping;
use crate::side;
use crate::users::{USERS, User};

/// Sectors of a page, and of the longest transfer.
const PAGE: u64 = 8;
const LONGEST: u64 = 64;

/// Sectors of a file.
#[derive(Clone, Copy, Debug)]
struct SectorRange {
    file: usize,
    first: u64,
    sectors: u64,
}

impl SectorRange {
    fn offset(self) -> u64 {
        self.first * SECTOR as u64
    }

    fn bytes(self) -> usize {
        usize::try_from(self.sectors).unwrap() * SECTOR
    }

    /// The range rounded out to whole pages.
    fn pages(self) -> Self {
        let first = self.first / PAGE * PAGE;
        Self { first, sectors: (self.first + self.sectors).next_multiple_of(PAGE) - first, ..self }
    }

    fn overlaps(self, other: Self) -> bool {
        self.file == other.file
            && self.first < other.first + other.sectors
            && other.first < self.first + self.sectors
    }
}

/// The interface by which a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Buffered,
    Direct,
    Mapped,
    Queued { engine: Kind, direct: bool },
}

impl Way {
    fn is_queued(self) -> bool {
        matches!(self, Self::Queued { .. })
    }

    fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::Queued { direct: true, .. })
    }
}

/// Determines how the server gets asynchronous writes that are not direct. If only a part of one
/// finds space, the kernel turns the short count into an error.
const CUTS: side::Kind = side::Kind::Ours("cache=direct");

/// A transfer in flight.
#[derive(Debug)]
enum Pending {
    Write { way: Way, range: SectorRange, version: u64 },
    Read { way: Way, range: SectorRange, oldest: Oldest },
}

/// The handles on one file.
struct Handles {
    buffered: Arc<File>,
    direct: Arc<File>,
    map: Mapping,
}

pub struct Worker<'a> {
    run: &'a TestRun<'a>,
    nth: usize,
    seed: u64,
    user: User,
    rng: Rng,
    files: Vec<Handles>,
    /// A file that no other worker uses.
    own: File,
    engines: [Engine; 2],
    pending: HashMap<u64, Pending>,
    next: u64,
    version: u64,
    attribute: Option<u64>,
    /// Changes of which only a sync tells if they found space, on a volume that [reports
    /// late](TestRun::reports_late).
    unsynced: Vec<(SectorRange, u64)>,
    /// For each file, the last version that no later sync tells of. Asynchronous writes among these
    /// versions may still be in flight.
    told: Vec<u64>,
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.run.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl<'a> Worker<'a> {
    pub fn new(run: &'a TestRun<'a>, nth: usize, seed: u64) -> Self {
        let user = USERS[nth % USERS.len()];
        user.enter();
        let handles = |file| {
            let buffered = run.open(file, true, false);
            let map = Mapping::new(&buffered, usize::try_from(run.size()).unwrap(), true).unwrap();
            Handles { buffered: Arc::new(buffered), direct: Arc::new(run.open(file, true, true)), map }
        };
        let depth = u32::try_from(run.shape.depth).unwrap();
        let open = || {
            let files = (0..run.files.len()).map(handles).collect();
            let own =
                File::options().read(true).write(true).create(true).truncate(true).open(run.own_path(nth));
            (files, own.expect("all users may make files"))
        };
        let (files, own) = run.watch.call(nth, || "opening files".to_owned(), open);
        Self {
            run,
            nth,
            seed,
            user,
            rng: Rng::new(seed, nth as u64),
            files,
            own,
            engines: [Kind::Aio, Kind::Ring].map(|kind| Engine::new(kind, depth).expect("asynchronous I/O")),
            pending: HashMap::new(),
            next: 0,
            version: run.files.iter().map(|versions| versions.newest(nth as u64)).max().unwrap_or(0),
            attribute: None,
            unsynced: Vec::new(),
            told: vec![0; run.files.len()],
        }
    }

    /// Runs until the time is over, then waits for all transfers, and syncs, so that no failure is
    /// left to the page cache.
    pub fn work(mut self) {
        while self.run.is_running() {
            self.operation();
            self.run.done.fetch_add(1, Ordering::Relaxed);
        }
        while !self.pending.is_empty() {
            self.reap();
        }
        for file in 0..self.files.len() {
            self.sync(file, false);
        }
    }

    fn call<R>(&self, name: impl FnOnce() -> String, call: impl FnOnce() -> R) -> R {
        self.run.watch.call(self.nth, name, call)
    }

    fn fail(&self, why: &str) -> ! {
        panic!("worker {} of seed {}, {:?}: {why}", self.nth, self.seed, self.user);
    }

    fn operation(&mut self) {
        if self.pending.len() >= self.run.shape.depth || !self.pending.is_empty() && self.rng.chance(10) {
            return self.reap();
        }
        match self.rng.below(1000) {
            0..380 => self.write(),
            380..700 => self.read(),
            700..740 => self.zero(),
            740..760 if self.run.preallocates() => self.allocate(),
            760..800 => self.seek(),
            800..830 => self.use_own_file(),
            830..840 => self.rename_own_file(),
            840..860 => self.copy(),
            860..890 => self.attributes(),
            890..900 => self.flags(),
            900..930 => self.forget(),
            930..950 => self.cut(),
            950..960 => self.open_again(),
            _ => {
                let (file, data_only) = (self.file(), self.rng.chance(50));
                self.sync(file, data_only);
            }
        }
    }

    fn file(&mut self) -> usize {
        usize::try_from(self.rng.below(self.files.len() as u64)).unwrap()
    }

    fn way(&mut self) -> Way {
        let engine = if self.rng.chance(50) { Kind::Aio } else { Kind::Ring };
        match self.rng.below(100) {
            0..20 => Way::Buffered,
            20..35 => Way::Direct,
            35..50 => Way::Mapped,
            _ => Way::Queued { engine, direct: self.rng.chance(70) },
        }
    }

    /// Returns a range within a region.
    fn range_in(&mut self, region: u64) -> SectorRange {
        let len = self.run.shape.region;
        let (mut first, mut sectors) = (self.rng.below(len), self.rng.log_uniform(LONGEST));
        if self.rng.chance(60) {
            (first, sectors) = (first / PAGE * PAGE, sectors.next_multiple_of(PAGE));
        }
        SectorRange { file: self.file(), first: region * len + first, sectors: sectors.min(len - first) }
    }

    /// Returns a range of the worker's own region of which no page is being written.
    fn own_range(&mut self) -> Option<SectorRange> {
        let range = self.range_in(self.nth as u64);
        let is_busy = |pending: &Pending| match pending {
            Pending::Write { range: other, .. } => other.pages().overlaps(range.pages()),
            Pending::Read { .. } => false,
        };
        (!self.pending.values().any(is_busy)).then_some(range)
    }

    fn versions(&self, range: SectorRange) -> &'a Versions {
        &self.run.files[range.file]
    }

    fn begin(&mut self, range: SectorRange, zeros: bool) -> u64 {
        self.version = Versions::next(self.version, zeros);
        self.versions(range).begin(range.first, range.sectors, self.version);
        self.version
    }

    fn handle(&self, file: usize, direct: bool) -> &Arc<File> {
        let Handles { buffered, direct: past, .. } = &self.files[file];
        if direct { past } else { buffered }
    }

    fn either_handle(&mut self, file: usize) -> Arc<File> {
        let direct = self.rng.chance(50);
        Arc::clone(self.handle(file, direct))
    }

    fn write(&mut self) {
        let (way, Some(range)) = (self.way(), self.own_range()) else { return };
        // Where blocks are missing, space may be missing too, and only write(2) can report that.
        let pages = range.pages();
        if way == Way::Mapped
            && self.run.is_full()
            && !self.versions(pages).are_data(pages.first, pages.sectors)
        {
            return;
        }
        let version = self.begin(range, false);
        let mut buf = AlignedBuf::zeroed(range.bytes().next_multiple_of(4096));
        self.versions(range).fill(&mut buf[..range.bytes()], range.first, version);
        let name = || format!("{way:?} write of {range:?}");
        let written = match way {
            Way::Queued { engine, direct } => {
                return self.submit(engine, direct, Pending::Write { way, range, version }, range, true, buf);
            }
            Way::Mapped => {
                let at = usize::try_from(range.offset()).unwrap();
                let write = || self.files[range.file].map.write(at, &buf[..range.bytes()]);
                self.call(name, write).map(|()| range.bytes())
            }
            Way::Buffered | Way::Direct => {
                let file = self.handle(range.file, way == Way::Direct);
                self.call(name, || pwrite(file, &buf[..range.bytes()], range.offset()))
            }
        };
        self.written(way, range, version, written);
    }

    /// Handles the result of a write.
    fn written(&mut self, way: Way, range: SectorRange, version: u64, written: Result<usize, Errno>) {
        let count = match written {
            Ok(count) if count == range.bytes() || self.run.is_full() => count,
            Err(Errno::NOSPC) if self.run.is_full() => 0,
            Err(Errno::IO) if self.run.is_full() && self.run.kind == CUTS && way.is_queued() => 0,
            // The kernel's ext4 reserves space for all holes of a folio, also for holes outside the
            // range.
            Err(Errno::FAULT) if self.run.is_full() && self.is_kernel() && way == Way::Mapped => 0,
            other => self.fail(&format!("{way:?} write of {range:?} came to {other:?}")),
        };
        let written = SectorRange { sectors: (count / SECTOR) as u64, ..range };
        if !self.run.reports_late() || way.is_direct() {
            self.versions(range).end(written.first, written.sectors, version);
        } else if version > self.told[range.file] {
            self.unsynced.push((written, version));
        }
    }

    fn is_kernel(&self) -> bool {
        self.run.kind == side::Kind::Kernel
    }

    /// Returns true if a call reports that earlier writes found no space, which the kernel had
    /// stored in its cache.
    fn is_late(&self, error: Errno) -> bool {
        error == Errno::NOSPC && self.run.reports_late()
    }

    fn read(&mut self) {
        let region = self.rng.below(self.run.shape.workers as u64);
        let (way, range) = (self.way(), self.range_in(region));
        // The last region is truncated, and a mapping past the end cannot be read.
        if way == Way::Mapped && region + 1 == self.run.shape.workers as u64 {
            return;
        }
        let mut buf = AlignedBuf::zeroed(range.bytes().next_multiple_of(4096));
        let oldest = self.versions(range).oldest(range.first, range.sectors);
        let name = || format!("{way:?} read of {range:?}");
        let read = match way {
            Way::Queued { engine, direct } => {
                return self.submit(engine, direct, Pending::Read { way, range, oldest }, range, false, buf);
            }
            Way::Mapped => {
                let at = usize::try_from(range.offset()).unwrap();
                let read = self.call(name, || self.files[range.file].map.read(at, range.bytes()));
                read.map(|bytes| {
                    buf[..bytes.len()].copy_from_slice(&bytes);
                    bytes.len()
                })
            }
            Way::Buffered | Way::Direct => {
                let file = self.handle(range.file, way == Way::Direct);
                self.call(name, || pread(file, &mut buf[..range.bytes()], range.offset()))
            }
        };
        self.was_read(way, range, &oldest, read, &buf);
    }

    /// Checks the data of a read.
    fn was_read(
        &self,
        way: Way,
        range: SectorRange,
        oldest: &Oldest,
        read: Result<usize, Errno>,
        buf: &[u8],
    ) {
        let is_cut = range.first / self.run.shape.region + 1 == self.run.shape.workers as u64;
        let count = match read {
            Ok(count) if count == range.bytes() || is_cut => count,
            Err(error) if self.is_late(error) => return,
            // The kernel's ext4 fails a direct read of a block that another handle has just
            // reserved in the cache.
            Err(Errno::IO) if self.is_kernel() && way.is_direct() => return,
            other => self.fail(&format!("{way:?} read of {range:?} came to {other:?}")),
        };
        if let Err(error) = self.versions(range).check(&buf[..count], oldest) {
            self.fail(&format!("{way:?} read of {range:?}: {error}"));
        }
    }

    fn submit(
        &mut self,
        engine: Kind,
        direct: bool,
        pending: Pending,
        range: SectorRange,
        writes: bool,
        buf: AlignedBuf,
    ) {
        let file = Arc::clone(self.handle(range.file, direct));
        let transfer = Transfer { file, writes, offset: range.offset(), buf, len: range.bytes() };
        let id = self.next;
        self.next += 1;
        let name = || format!("submitting to {engine:?} {pending:?}");
        let (watch, nth) = (self.run.watch, self.nth);
        let queue = &mut self.engines[usize::from(engine == Kind::Ring)];
        let submitted = watch.call(nth, name, || queue.submit(id, transfer));
        self.pending.insert(id, pending);
        if let Err(refused) = submitted {
            self.over(refused);
        }
    }

    /// Waits for transfers of either queue.
    fn reap(&mut self) {
        let (watch, nth, pending) = (self.run.watch, self.nth, &self.pending);
        let first = usize::from(self.rng.chance(50));
        let Some(queue) = [first, 1 - first].into_iter().find(|&nth| self.engines[nth].under_way() > 0)
        else {
            return;
        };
        let queue = &mut self.engines[queue];
        let done = watch.call(nth, || format!("waiting for {pending:?}"), || queue.reap(1));
        done.expect("the kernel returns transfers").into_iter().for_each(|done| self.over(done));
    }

    fn over(&mut self, done: Done) {
        let result = usize::try_from(done.result)
            .map_err(|_| Errno::from_raw_os_error(i32::try_from(-done.result).unwrap_or(libc::EIO)));
        match self.pending.remove(&done.id).expect("each transfer is over once") {
            Pending::Write { way, range, version } => self.written(way, range, version, result),
            Pending::Read { way, range, oldest } => {
                self.was_read(way, range, &oldest, result, &done.transfer.buf);
            }
        }
    }

    /// Zeroes a range.
    fn zero(&mut self) {
        let Some(range) = self.own_range() else { return };
        let version = self.begin(range, true);
        let mode = if !self.run.preallocates() || self.rng.chance(50) {
            FallocateFlags::PUNCH_HOLE
        } else {
            FallocateFlags::ZERO_RANGE
        };
        let file = &self.either_handle(range.file);
        let (offset, len) = (range.offset(), range.bytes() as u64);
        let zero = || fallocate(file, mode | FallocateFlags::KEEP_SIZE, offset, len);
        match self.call(|| format!("{mode:?} of {range:?}"), zero) {
            Ok(()) => self.versions(range).end(range.first, range.sectors, version),
            Err(Errno::NOSPC) if self.run.is_full() => {}
            Err(error) => self.fail(&format!("{mode:?} of {range:?}: {error}")),
        }
    }

    fn allocate(&mut self) {
        let Some(range) = self.own_range() else { return };
        let file = &self.either_handle(range.file);
        let (offset, len) = (range.offset(), range.bytes() as u64);
        let allocate = || fallocate(file, FallocateFlags::KEEP_SIZE, offset, len);
        match self.call(|| format!("allocation of {range:?}"), allocate) {
            Ok(()) => {}
            Err(Errno::NOSPC) if self.run.is_full() => {}
            Err(error) => self.fail(&format!("allocation of {range:?}: {error}")),
        }
    }

    /// Asserts that written sectors are found as data, wherever they are.
    fn seek(&mut self) {
        let Some(range) = self.own_range() else { return };
        if !self.versions(range).are_data(range.first, range.sectors) {
            return;
        }
        let file = &self.either_handle(range.file);
        let data =
            self.call(|| format!("SEEK_DATA in {range:?}"), || seek(file, SeekFrom::Data(range.offset())));
        let hole =
            self.call(|| format!("SEEK_HOLE in {range:?}"), || seek(file, SeekFrom::Hole(range.offset())));
        let end = range.offset() + range.bytes() as u64;
        if [data, hole].into_iter().any(|found| found.is_err_and(|error| self.is_late(error))) {
            return;
        }
        if data != Ok(range.offset()) || hole.is_ok_and(|hole| hole < end) || hole.is_err() {
            self.fail(&format!("{range:?} is data, but data is at {data:?} and a hole at {hole:?}"));
        }
    }

    /// Copies a range that other workers may be writing, and checks the copy.
    fn copy(&mut self) {
        let region = self.rng.below(self.run.shape.workers as u64);
        let range = self.range_in(region);
        let oldest = self.versions(range).oldest(range.first, range.sectors);
        let (from, own) = (self.handle(range.file, false), &self.own);
        let mut buf = vec![0; range.bytes()];
        let copied = self.call(
            || format!("copy of {range:?}"),
            || {
                let (mut offset, mut to) = (range.offset(), 0);
                let count = copy_file_range(from, Some(&mut offset), own, Some(&mut to), range.bytes())?;
                pread(own, &mut buf[..count], 0)
            },
        );
        if copied == Err(Errno::NOSPC) && self.run.is_full() {
            return;
        }
        let copied = copied.map(|count| if self.run.is_full() { range.bytes().min(count) } else { count });
        match copied {
            Ok(count) if self.run.is_full() && count < range.bytes() => {}
            copied => self.was_read(Way::Buffered, range, &oldest, copied, &buf),
        }
    }

    /// Sets an attribute of its own on a shared file, and asserts that the last value is there.
    fn attributes(&mut self) {
        let name = format!("user.worker{}", self.nth % 16);
        if self.nth >= 16 {
            return self.set_acl();
        }
        let file = &Arc::clone(self.handle(0, false));
        if let Some(wanted) = self.attribute {
            let mut value = [0; 8];
            let got = self.call(|| format!("getxattr of {name}"), || fgetxattr(file, &*name, &mut value[..]));
            if got != Ok(8) || u64::from_le_bytes(value) != wanted {
                self.fail(&format!("{name} is {got:?}, {value:?}, not {wanted}"));
            }
        }
        let value = self.rng.next();
        let set = || fsetxattr(file, &*name, &value.to_le_bytes(), XattrFlags::empty());
        match self.call(|| format!("setxattr of {name}"), set) {
            Ok(()) => self.attribute = Some(value),
            Err(Errno::NOSPC) if self.run.is_full() => {}
            Err(error) => self.fail(&format!("setxattr of {name}: {error}")),
        }
    }

    /// Changes its own file, which keeps its permissions.
    fn set_acl(&mut self) {
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in [
            (0x01_u16, 6_u16, u32::MAX),
            (0x02, 4, User::Stranger.id()),
            (0x04, 4, u32::MAX),
            (0x10, 4, u32::MAX),
            (0x20, 4, u32::MAX),
        ] {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        let own = &self.own;
        let set = || fsetxattr(own, "system.posix_acl_access", &value, XattrFlags::empty());
        match self.call(|| "setting an access control list".to_owned(), set) {
            Ok(()) => {}
            Err(Errno::NOSPC) if self.run.is_full() => {}
            Err(error) => self.fail(&format!("setting an access control list: {error}")),
        }
    }

    /// Changes flags of a file that only root may change.
    fn flags(&mut self) {
        let (file, nodump) = (self.file(), self.rng.chance(50));
        let handle = &self.either_handle(file);
        let change = || -> Result<(), Errno> {
            let mut flags = ioctl_getflags(handle)?;
            flags.set(IFlags::NODUMP, nodump);
            ioctl_setflags(handle, flags)
        };
        match (self.call(|| "flags".to_owned(), change), self.user) {
            (Ok(()), User::Root) => {}
            (Err(Errno::PERM | Errno::ACCESS), User::Owner | User::Friend | User::Stranger) => {}
            (other, _) => self.fail(&format!("changing flags came to {other:?}")),
        }
    }

    fn forget(&mut self) {
        let region = self.rng.below(self.run.shape.workers as u64);
        let range = self.range_in(region);
        let file = self.handle(range.file, false);
        let len = std::num::NonZero::new(range.bytes() as u64);
        let forget = || fadvise(file, range.offset(), len, Advice::DontNeed);
        self.call(|| format!("forgetting {range:?}"), forget).expect("advice is taken");
    }

    /// The owner of the last region truncates the file within it, and extends it to its former
    /// size.
    fn cut(&mut self) {
        if self.nth + 1 != self.run.shape.workers {
            return;
        }
        let Some(range) = self.own_range() else { return };
        let range = SectorRange { sectors: self.versions(range).len() - range.first, ..range };
        let is_busy = |pending: &Pending| matches!(pending, Pending::Write { range: other, .. } if other.pages().overlaps(range.pages()));
        if self.pending.values().any(is_busy) {
            return;
        }
        let version = self.begin(range, true);
        let (file, size) = (&self.either_handle(range.file), self.run.size());
        let cut = || ftruncate(file, range.offset()).and_then(|()| ftruncate(file, size));
        match self.call(|| format!("cut at {range:?}"), cut) {
            Ok(()) => self.versions(range).end(range.first, range.sectors, version),
            Err(error) if self.is_late(error) => {}
            Err(error) => self.fail(&format!("cut at {range:?}: {error}")),
        }
    }

    fn open_again(&mut self) {
        let file = self.file();
        let run = self.run;
        let open = || {
            let buffered = run.open(file, true, false);
            let map =
                Mapping::new(&buffered, usize::try_from(run.size()).unwrap(), true).expect("it is mapped");
            Handles { buffered: Arc::new(buffered), direct: Arc::new(run.open(file, true, true)), map }
        };
        self.files[file] = self.call(|| "opening files".to_owned(), open);
        // A new handle does not report what another one has reported.
        self.give_up(file);
    }

    /// Cannot fail, because writes that found no space were refused before, unless these errors
    /// come late.
    fn sync(&mut self, file: usize, data_only: bool) {
        let handle = &self.either_handle(file);
        let sync = || if data_only { fdatasync(handle) } else { fsync(handle) };
        let synced = slowest::fsync(|| self.call(|| "fsync".to_owned(), sync));
        match synced {
            Ok(()) => {
                let found = |&(range, version): &(SectorRange, u64)| {
                    self.versions(range).end(range.first, range.sectors, version);
                };
                self.unsynced.iter().filter(|(range, _)| range.file == file).for_each(found);
            }
            // One of the writes has failed, and the next sync does not report it again.
            Err(error) if self.is_late(error) => self.give_up(file),
            // A direct write could not drop pages that another handle dirtied, which the kernel's
            // ext4 reports to the next sync.
            Err(Errno::IO) if self.is_kernel() => self.give_up(file),
            Err(error) => self.fail(&format!("fsync: {error}")),
        }
        self.unsynced.retain(|(range, _)| range.file != file);
    }

    /// Leaves open if the writes until now, also the ones in flight, have found space.
    fn give_up(&mut self, file: usize) {
        self.told[file] = self.version;
        self.unsynced.retain(|(range, _)| range.file != file);
    }
}

//! Three files that all threads of a history change: one grows by appends; one is preallocated, and
//! each thread writes, punches and zeroes regions of its own; and of one, some threads collapse,
//! insert and truncate parts while other threads write and append.

mod moved;

use std::sync::Arc;

use parext4::device::AlignedBuf;
use parext4::{DirectFile, Error, File, FileSize, IoFlags, IoRequest, OpenOptions, Result, Volume};
use parking_lot::Mutex;
use testkit::history::Clock;
use testkit::ops::{Tree, Way};
use testkit::rng::Rng;
use testkit::sector::{SECTOR, Seen, Stamp, fill, fill_append, identify_all};

use crate::op::PIECE;
use crate::record::Recorder;

/// The files.
pub const PATHS: [&str; 3] = ["/appended", "/ahead", "/moved"];
const APPENDED: usize = 0;
const AHEAD: usize = 1;
const MOVED: usize = 2;
/// Sectors of a region, and regions of a thread.
const REGION: u64 = 12;
const REGIONS: u64 = 3;
/// The most sectors by which an append or an insertion grows a file.
const MAX_GROWTH: u64 = 6;
/// The most sectors of the file that is moved, after a truncation or a write.
const MAX_SECTORS: u64 = 48;
/// Sectors of a collapse or an insertion, and of its alignment.
const STEP: u64 = PIECE / SECTOR as u64;

/// A change of one of the files.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// An append of sectors to one of the files.
    Append(usize, Way, u64),
    /// A write of sectors of one of the files.
    Write(usize, Way, SectorRange),
    /// A hole in a region.
    Punch(SectorRange),
    /// Zeros in a region.
    Zero(SectorRange),
    /// A sync of one of the files.
    Sync(usize),
    /// Another size of the file that is moved, in sectors.
    SetLen(u64),
    /// A collapse of `STEP` sectors of the file that is moved, from a sector on.
    Collapse(u64),
    /// An insertion of `STEP` sectors into the file that is moved, before a sector.
    Insert(u64),
}

/// Sectors of a file.
#[derive(Clone, Copy, Debug)]
pub struct SectorRange {
    first: u64,
    end: u64,
}

impl Change {
    /// Returns a random change by a thread. Files without extents have no zeros, collapses and
    /// insertions.
    pub fn random(rng: &mut Rng, thread: u8, has_extents: bool) -> Self {
        let way = [Way::Buffered, Way::Direct, Way::Queued][usize::try_from(rng.below(3)).expect("few")];
        let region = u64::from(thread) * REGIONS + rng.below(REGIONS);
        let skipped = rng.below(REGION - 1);
        let first = region * REGION + skipped;
        let place = SectorRange { first, end: first + 1 + rng.below(REGION - skipped) };
        match rng.below(14) {
            0..=3 => Self::Append(APPENDED, way, 1 + rng.below(MAX_GROWTH)),
            4..=6 => Self::Write(AHEAD, way, place),
            7 => Self::Punch(place),
            8 if has_extents => Self::Zero(place),
            9..=12 => Self::of_moved(rng, way, has_extents),
            _ => Self::Sync(usize::try_from(rng.below(PATHS.len() as u64)).expect("few")),
        }
    }

    /// Returns a random change of the file that is moved.
    fn of_moved(rng: &mut Rng, way: Way, has_extents: bool) -> Self {
        let sector = rng.below(MAX_SECTORS - MAX_GROWTH);
        match rng.below(8) {
            0 | 1 => Self::Append(MOVED, way, 1 + rng.below(MAX_GROWTH)),
            2 | 3 => Self::Write(
                MOVED,
                way,
                SectorRange { first: sector, end: sector + 1 + rng.below(MAX_GROWTH) },
            ),
            4 if has_extents => Self::Collapse(sector / STEP * STEP),
            5 if has_extents => Self::Insert(sector / STEP * STEP),
            6 => Self::Sync(MOVED),
            _ => Self::SetLen(sector),
        }
    }
}

/// A change that a thread has begun.
#[derive(Clone, Debug)]
struct Begun {
    file: usize,
    /// Sectors; of an append known once it has returned.
    place: SectorRange,
    /// The contents after it; `None` for zeros.
    stamp: Option<Stamp>,
    /// Events and time before.
    events: usize,
    began: u64,
    /// The time at which it returned; the largest number before.
    over: u64,
}

/// A sync that returned.
#[derive(Clone, Debug)]
struct Synced {
    /// The file; `None` for the volume.
    file: Option<usize>,
    /// The time at which it began.
    began: u64,
    /// Events after it.
    events: usize,
}

#[derive(Debug, Default)]
struct Log {
    /// In the order in which changes begin; only one thread changes a region.
    begun: Vec<Begun>,
    synced: Vec<Synced>,
}

/// The files, and what threads did to them.
#[derive(Debug)]
pub struct Shared {
    clock: Arc<Clock>,
    recorder: Arc<Recorder>,
    /// The number before that of each thread's first write.
    sequence: u64,
    log: Mutex<Log>,
}

/// The handles of one thread.
pub struct Handles<'a> {
    shared: &'a Shared,
    volume: &'a Volume,
    direct: Vec<DirectFile>,
    buffered: Vec<File>,
    thread: u8,
    sequence: u64,
}

/// Makes the files, for [`MAX_THREADS`](crate::start::MAX_THREADS) threads.
///
/// # Errors
/// The errors of the calls.
pub fn make(volume: &Volume, has_extents: bool) -> Result<()> {
    let len = u64::from(crate::start::MAX_THREADS) * REGIONS * REGION * SECTOR as u64;
    for (number, path) in PATHS.into_iter().enumerate() {
        let file = volume.open_direct(path, &OpenOptions::read_write().create_new(true))?;
        match (number, has_extents) {
            (APPENDED | MOVED, _) => {}
            (_, true) => file.allocate(0..len, FileSize::Extend)?,
            (_, false) => file.set_len(len)?,
        }
    }
    Ok(())
}

/// Makes the files of [`make`] again.
///
/// # Errors
/// The errors of the calls.
pub fn make_again(volume: &Volume, has_extents: bool) -> Result<()> {
    PATHS.into_iter().try_for_each(|path| volume.remove_file(path))?;
    make(volume, has_extents)
}

impl Shared {
    /// Returns the log of a history that begins. Writes of each generation of histories of one
    /// volume have numbers of their own.
    pub fn new(clock: Arc<Clock>, recorder: Arc<Recorder>, generation: u64) -> Self {
        Self { clock, recorder, sequence: generation << 16, log: Mutex::default() }
    }

    /// Returns handles for a thread.
    ///
    /// # Errors
    /// The errors of opening the files.
    pub fn handles<'a>(&'a self, volume: &'a Volume, thread: u8) -> Result<Handles<'a>> {
        let open = |path| volume.open_direct(path, &OpenOptions::read_write());
        let direct = PATHS.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        let buffered = direct.iter().map(DirectFile::buffered).collect::<Result<Vec<_>>>()?;
        Ok(Handles { shared: self, volume, direct, buffered, thread, sequence: self.sequence })
    }

    /// Notes that a sync of the volume that began at `began` has returned.
    pub fn volume_synced(&self, began: u64) {
        self.synced(None, began);
    }

    fn synced(&self, file: Option<usize>, began: u64) {
        let events = self.recorder.events();
        self.log.lock().synced.push(Synced { file, began, events });
    }

    fn begin(&self, file: usize, place: SectorRange, stamp: Option<Stamp>) -> usize {
        let events = self.recorder.events();
        let mut log = self.log.lock();
        let began = self.clock.tick();
        log.begun.push(Begun { file, place, stamp, events, began, over: u64::MAX });
        log.begun.len() - 1
    }

    fn over(&self, index: usize, place: SectorRange) {
        let over = self.clock.tick();
        let mut log = self.log.lock();
        log.begun[index].place = place;
        log.begun[index].over = over;
    }

    /// Checks the files after a crash between `earliest` and `latest`, in events.
    ///
    /// # Errors
    /// What is missing, or should not be there.
    pub fn check(&self, tree: &Tree, earliest: usize, latest: usize) -> std::result::Result<(), String> {
        for (number, path) in PATHS.into_iter().enumerate() {
            let key = tree.file(path).ok_or_else(|| format!("{path} is lost"))?;
            let bytes = tree.files[key].bytes();
            let log = self.log.lock();
            let of_file =
                |sync: &&Synced| sync.file.is_none_or(|file| file == number) && sync.events <= latest;
            let durable = log.synced.iter().filter(of_file).map(|sync| sync.began).max().unwrap_or(0);
            let begun = log.begun.iter().filter(|begun| begun.file == number);
            let begun: Vec<_> =
                begun.filter(|begun| begun.over < durable || begun.events <= earliest).collect();
            let seen = || identify_all(bytes, file_number(number), 0);
            let checked = match number {
                APPENDED => seen().and_then(|seen| check_appends(&seen, &begun, durable)),
                AHEAD => seen().and_then(|seen| check_regions(&seen, &begun, durable)),
                _ => moved::check(bytes, &begun, durable),
            };
            checked.map_err(|e| format!("{path}: {e}"))?;
        }
        Ok(())
    }
}

fn file_number(file: usize) -> u32 {
    1 + u32::try_from(file).expect("few files")
}

fn check_appends(seen: &[Seen], begun: &[&Begun], durable: u64) -> std::result::Result<(), String> {
    for append in begun.iter().filter(|append| append.over < durable) {
        for sector in append.place.first..append.place.end {
            let found = seen.get(usize::try_from(sector).expect("small")).copied();
            let origin = append.place.first;
            let wanted = append.stamp.map(|stamp| Seen::Data(Stamp { origin, ..stamp }));
            if found != wanted {
                return Err(format!("sector {sector} is {found:?}, and {append:?} was synced"));
            }
        }
    }
    match seen.iter().find(|seen| matches!(seen, Seen::Data(stamp) if !is_known(begun, stamp))) {
        Some(seen) => Err(format!("{seen:?}, which was not written yet")),
        None => Ok(()),
    }
}

/// Returns true if the write of a stamp has begun.
fn is_known(begun: &[&Begun], stamp: &Stamp) -> bool {
    let id = |stamp: &Stamp| (stamp.writer, stamp.sequence);
    begun.iter().any(|change| change.stamp.is_some_and(|known| id(&known) == id(stamp)))
}

fn check_regions(seen: &[Seen], begun: &[&Begun], durable: u64) -> std::result::Result<(), String> {
    for (sector, seen) in (0..).zip(seen) {
        let mut possible = vec![Seen::Zero];
        for change in begun.iter().filter(|change| (change.place.first..change.place.end).contains(&sector)) {
            if change.over < durable {
                possible.clear();
            }
            possible.push(change.stamp.map_or(Seen::Zero, Seen::Data));
        }
        if !possible.contains(seen) {
            return Err(format!("sector {sector} is {seen:?}, not one of {possible:?}"));
        }
    }
    Ok(())
}

impl Handles<'_> {
    /// Makes a change, and notes it.
    ///
    /// # Errors
    /// The errors of the call.
    pub fn run(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Append(file, way, sectors) => self.append(file, way, sectors),
            Change::Write(file, way, place) => self.write(file, way, place),
            Change::Punch(place) => {
                self.space(AHEAD, place, |file, offset, len| file.punch_hole(offset..offset + len))
            }
            Change::Zero(place) => self.space(AHEAD, place, |file, offset, len| {
                file.zero_range(offset..offset + len, FileSize::Keep)
            }),
            Change::SetLen(sectors) => {
                let place = SectorRange { first: sectors, end: sectors };
                self.space(MOVED, place, |file, offset, _| file.set_len(offset))
            }
            Change::Collapse(first) => {
                let place = SectorRange { first, end: first + STEP };
                self.space(MOVED, place, |file, offset, len| {
                    unless_short(file.collapse_range(offset..offset + len))
                })
            }
            Change::Insert(first) => {
                let place = SectorRange { first, end: first + STEP };
                self.space(MOVED, place, |file, offset, len| {
                    unless_short(file.insert_range(offset..offset + len))
                })
            }
            Change::Sync(file) => {
                let began = self.shared.clock.tick();
                self.direct[file].sync_data()?;
                self.shared.synced(Some(file), began);
                Ok(())
            }
        }
    }

    fn stamp(&mut self, file: usize) -> Stamp {
        self.sequence += 1;
        let (file, writer) = (file_number(file), u32::from(self.thread) + 1);
        Stamp { file, writer, sequence: self.sequence, origin: 0 }
    }

    /// Makes a change that stores no data, with its offset and length in bytes.
    fn space(
        &self,
        file: usize,
        place: SectorRange,
        change: impl FnOnce(&DirectFile, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let index = self.shared.begin(file, place, None);
        let (offset, len) = bytes_of(place);
        change(&self.direct[file], offset, len)?;
        self.shared.over(index, place);
        Ok(())
    }

    fn append(&mut self, file: usize, way: Way, sectors: u64) -> Result<()> {
        let stamp = self.stamp(file);
        let mut bytes = vec![0; index(sectors) * SECTOR];
        fill_append(&mut bytes, stamp);
        let index = self.shared.begin(file, SectorRange { first: 0, end: 0 }, Some(stamp));
        let at = match way {
            Way::Buffered | Way::Synced => self.buffered[file].append(&bytes)?,
            Way::Direct => self.direct[file].append(&bytes)?,
            Way::Queued => {
                let len = bytes.len();
                self.queue(file, IoRequest::Append { buf: AlignedBuf::from_slice(&bytes), len })?
            }
        };
        let first = at / SECTOR as u64;
        self.shared.over(index, SectorRange { first, end: first + sectors });
        Ok(())
    }

    fn write(&mut self, file: usize, way: Way, place: SectorRange) -> Result<()> {
        let stamp = self.stamp(file);
        let (offset, len) = bytes_of(place);
        let mut bytes = vec![0; index(len)];
        if file == MOVED {
            // Its place may change.
            fill_append(&mut bytes, stamp);
        } else {
            fill(&mut bytes, place.first, stamp);
        }
        let index = self.shared.begin(file, place, Some(stamp));
        match way {
            Way::Buffered | Way::Synced => self.buffered[file].write_all_at(&bytes, offset)?,
            Way::Direct => self.direct[file].write_all_at(&bytes, offset)?,
            Way::Queued => {
                let len = bytes.len();
                let buf = AlignedBuf::from_slice(&bytes);
                self.queue(file, IoRequest::Write { buf, len, offset }).map(drop)?;
            }
        }
        self.shared.over(index, place);
        Ok(())
    }

    fn queue(&self, file: usize, request: IoRequest) -> Result<u64> {
        let mut queue = self.volume.io_queue(2);
        queue.submit(&self.direct[file], request, 0, IoFlags::new());
        let mut done = Vec::new();
        while done.is_empty() {
            queue.harvest(&mut done)?;
        }
        done.remove(0).result
    }
}

/// Ignores the error of a range past the end of the file, which other threads truncate.
fn unless_short(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::Invalid(_)) => Ok(()),
        result => result,
    }
}

fn bytes_of(place: SectorRange) -> (u64, u64) {
    (place.first * SECTOR as u64, (place.end - place.first) * SECTOR as u64)
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

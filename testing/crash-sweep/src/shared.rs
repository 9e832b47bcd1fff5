//! Three files that all threads of a history change: one grows by appends; one is preallocated, and
//! each thread writes, punches and zeroes regions of its own; and of one, some threads collapse,
//! insert and truncate parts while other threads write and append.

mod moved;

use std::sync::Arc;

use parext4::{Error, FileSize, OpenOptions, Result, Volume};
use parking_lot::Mutex;
use testkit::history::Clock;
use testkit::ops::{Content, FileHandles, FileOp, Outcome, Tree, Way};
use testkit::rng::Rng;
use testkit::sector::{SECTOR, Seen, Stamp, identify_all};
use testkit::volume::DirectFiles as _;

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

/// A change of one of the files, or a sync of it.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    file: usize,
    op: FileOp,
}

/// Sectors of a file.
#[derive(Clone, Copy, Debug)]
pub struct SectorRange {
    first: u64,
    end: u64,
}

impl SectorRange {
    /// Returns the sectors of a range of bytes.
    fn of(offset: u64, len: u64) -> Self {
        Self { first: offset / SECTOR as u64, end: (offset + len) / SECTOR as u64 }
    }
}

impl Change {
    /// Returns a random change by a thread. Files without extents have no zeros, collapses and
    /// insertions.
    pub fn random(rng: &mut Rng, thread: u8, has_extents: bool) -> Self {
        let way = [Way::Buffered, Way::Direct, Way::Queued][usize::try_from(rng.below(3)).expect("few")];
        let region = u64::from(thread) * REGIONS + rng.below(REGIONS);
        let skipped = rng.below(REGION - 1);
        let (offset, len) = (bytes(region * REGION + skipped), bytes(1 + rng.below(REGION - skipped)));
        match rng.below(14) {
            0..=3 => Self { file: APPENDED, op: append(rng, way) },
            4..=6 => Self { file: AHEAD, op: FileOp::Write { way, offset, len } },
            7 => Self { file: AHEAD, op: FileOp::PunchHole { offset, len } },
            8 if has_extents => Self { file: AHEAD, op: FileOp::ZeroRange { offset, len, keep_size: true } },
            9..=12 => Self { file: MOVED, op: op_on_moved(rng, way, has_extents) },
            _ => Self { file: usize::try_from(rng.below(PATHS.len() as u64)).expect("few"), op: SYNC },
        }
    }
}

/// A sync of a file.
const SYNC: FileOp = FileOp::SyncData { way: Way::Direct };

fn append(rng: &mut Rng, way: Way) -> FileOp {
    FileOp::Append { way, len: bytes(1 + rng.below(MAX_GROWTH)) }
}

/// Returns a random change of the file that is moved.
fn op_on_moved(rng: &mut Rng, way: Way, has_extents: bool) -> FileOp {
    let sector = rng.below(MAX_SECTORS - MAX_GROWTH);
    let (step, len) = (bytes(sector / STEP * STEP), bytes(STEP));
    match rng.below(8) {
        0 | 1 => append(rng, way),
        2 | 3 => FileOp::Write { way, offset: bytes(sector), len: bytes(1 + rng.below(MAX_GROWTH)) },
        4 if has_extents => FileOp::CollapseRange { offset: step, len },
        5 if has_extents => FileOp::InsertRange { offset: step, len },
        6 => SYNC,
        _ => FileOp::SetLen { size: bytes(sector) },
    }
}

fn bytes(sectors: u64) -> u64 {
    sectors * SECTOR as u64
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
    files: Vec<FileHandles>,
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
        let open = |path| FileHandles::new(volume, volume.direct_file(path)?);
        let files = PATHS.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(Handles { shared: self, files, thread, sequence: self.sequence })
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
    pub fn run(&mut self, Change { file, op }: Change) -> Result<()> {
        if !op.changes() {
            let began = self.shared.clock.tick();
            self.files[file].run(op, Content::Byte(0))?;
            self.shared.synced(Some(file), began);
            return Ok(());
        }
        let (place, stamp) = match op {
            FileOp::Write { offset, len, .. } => (SectorRange::of(offset, len), Some(self.stamp(file))),
            FileOp::Append { .. } => (SectorRange { first: 0, end: 0 }, Some(self.stamp(file))),
            FileOp::PunchHole { offset, len }
            | FileOp::ZeroRange { offset, len, .. }
            | FileOp::CollapseRange { offset, len }
            | FileOp::InsertRange { offset, len } => (SectorRange::of(offset, len), None),
            FileOp::SetLen { size } => (SectorRange::of(size, 0), None),
            _ => unreachable!("no change is {op:?}"),
        };
        let content = match stamp {
            // Its place is not known yet, or may change.
            Some(stamp) if file == MOVED || matches!(op, FileOp::Append { .. }) => Content::Movable(stamp),
            Some(stamp) => Content::Stamp(stamp),
            None => Content::Byte(0),
        };
        let index = self.shared.begin(file, place, stamp);
        let place = match self.files[file].run(op, content) {
            Ok(Outcome::Appended(at)) => {
                SectorRange::of(at, op.written(at).map_or(0, |range| range.end - at))
            }
            Ok(_) => place,
            // The range is past the end of the file, which other threads truncate.
            Err(Error::Invalid(_)) if op.shifts() => place,
            Err(error) => return Err(error),
        };
        self.shared.over(index, place);
        Ok(())
    }

    fn stamp(&mut self, file: usize) -> Stamp {
        self.sequence += 1;
        let (file, writer) = (file_number(file), u32::from(self.thread) + 1);
        Stamp { file, writer, sequence: self.sequence, origin: 0 }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}

//! The simulated device: requests take times that the seed chooses, complete in any order, and
//! fail; a power cut loses writes that were not flushed. By its profile it also breaks its
//! contract.

mod medium;
mod metadata;
mod queue;

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crash_sweep::record::Recorder;
use parext4::device::{Op, Queue, check, forward_device};
use parext4::models::simulated_time::{now, sleep};
use parext4::{Device, MemDevice};
use parking_lot::Mutex;
use testkit::rng::Rng;
use testkit::sector::SECTOR;

use self::medium::Medium;
use self::queue::SimulatedQueue;
use crate::profile::{ContractFault, Profile};
use crate::trace;

/// The device breaks its contract in one of this number of requests, if it does.
const DECEIVE_ONE_IN: u64 = 60;
/// The superblock, which spans two sectors: no implementation opens a volume with half of it.
const SUPERBLOCK: Range<u64> = 1024..2048;

/// The device.
#[derive(Debug)]
pub struct SimulatedDevice {
    recorder: Arc<Recorder>,
    medium: Arc<Medium>,
    profile: Profile,
    /// The sectors that do not decay.
    journal: Range<u64>,
    state: Mutex<RequestState>,
}

#[derive(Debug)]
struct RequestState {
    rng: Rng,
    /// Offset and bytes of the writes that have not completed, by number.
    in_flight: BTreeMap<u64, (u64, Vec<u8>)>,
    next: u64,
    faults: Faults,
    /// Whether requests may fail, and the device break its contract.
    may_fail: bool,
}

/// The requests that went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads that failed.
    pub reads: u64,
    /// Writes and flushes that failed.
    pub changes: u64,
    /// Times that the device broke its contract.
    pub contract_faults: u64,
}

impl Faults {
    /// Returns true if a request went wrong.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// A request that the device has accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The time that it takes.
    pub latency: Duration,
    number: u64,
    fate: Fate,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Succeeds,
    Fails,
    /// It has no effect.
    Lost,
    /// It concerns the sectors at another offset.
    Misdirected(u64),
    /// It returns a changed bit, which the number chooses.
    Flipped(u64),
}

/// The kind of a request, with its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Read(u64),
    Write(u64),
    Flush,
    Discard,
}

impl SimulatedDevice {
    /// Returns a device with the contents of `image`.
    pub fn new(image: &MemDevice, profile: Profile, seed: u64) -> Arc<Self> {
        let medium = Arc::new(Medium::new(image.fork(), profile, seed));
        let recorder = Recorder::over(Arc::clone(&medium) as Arc<dyn Device>);
        let journal =
            if profile.contract_fault == ContractFault::Decay { metadata::journal(image) } else { 0..0 };
        let state = RequestState {
            rng: Rng::new(seed, 4),
            in_flight: BTreeMap::new(),
            next: 0,
            faults: Faults::default(),
            may_fail: false,
        };
        Arc::new(Self { recorder, medium, profile, journal, state: Mutex::new(state) })
    }

    /// Returns the record of its writes.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Begins or ends to fail and to break the contract, as the profile says.
    pub fn set_faults(&self, may_fail: bool) {
        self.state.lock().may_fail = may_fail;
    }

    /// Returns the requests that went wrong.
    pub fn faults(&self) -> Faults {
        self.state.lock().faults
    }

    /// Returns true if the power was cut.
    pub fn is_off(&self) -> bool {
        self.medium.is_off()
    }

    /// Cuts the power. All later requests fail. Writes under way may be on the device, as writes
    /// since the last flush.
    pub fn cut_power(&self) {
        if self.is_off() {
            return;
        }
        let in_flight = std::mem::take(&mut self.state.lock().in_flight);
        self.medium.cut_power(|| {
            for (offset, bytes) in in_flight.values() {
                self.recorder.write_at(*offset, &[IoSlice::new(bytes)]).expect("it was accepted");
            }
        });
    }

    /// Accepts a request of a queue.
    pub fn accept(&self, op: &Op) -> Accepted {
        match op {
            Op::Read { len, .. } => self.accept_request(Kind::Read(*len as u64)),
            Op::Write { offset, segments } => {
                let bytes: Vec<u8> = segments
                    .iter()
                    .flat_map(|segment| segment.bytes().unwrap_or_default())
                    .copied()
                    .collect();
                self.accept_write(*offset, bytes)
            }
            _ => self.accept_request(Kind::Flush),
        }
    }

    fn accept_write(&self, offset: u64, bytes: Vec<u8>) -> Accepted {
        let accepted = self.accept_request(Kind::Write(bytes.len() as u64));
        if check::change_range(self, offset, bytes.len() as u64).is_ok() {
            self.state.lock().in_flight.insert(accepted.number, (offset, bytes));
        }
        accepted
    }

    fn accept_request(&self, kind: Kind) -> Accepted {
        let latency = self.medium.latency();
        let mut state = self.state.lock();
        state.next += 1;
        let (number, fate) = (state.next, self.fate(&mut state, kind));
        let decays = self.profile.contract_fault == ContractFault::Decay && deceives(&mut state);
        drop(state);
        if decays {
            self.decay();
        }
        Accepted { latency, number, fate }
    }

    fn fate(&self, state: &mut RequestState, kind: Kind) -> Fate {
        if !state.may_fail || kind == Kind::Discard {
            return Fate::Succeeds;
        }
        if self.profile.fail_one_in.is_some_and(|one_in| state.rng.below(one_in) == 0) {
            match kind {
                Kind::Read(_) => state.faults.reads += 1,
                _ => state.faults.changes += 1,
            }
            return Fate::Fails;
        }
        let fate = match (self.profile.contract_fault, kind) {
            (ContractFault::FlippedRead, Kind::Read(_)) => Fate::Flipped(state.rng.next()),
            (ContractFault::Misdirection, Kind::Read(len) | Kind::Write(len)) => {
                let sectors = (self.size() - len) / SECTOR as u64;
                Fate::Misdirected(state.rng.below(sectors + 1) * SECTOR as u64)
            }
            (ContractFault::LostWrite, Kind::Write(_) | Kind::Flush) => Fate::Lost,
            _ => return Fate::Succeeds,
        };
        if !deceives(state) {
            return Fate::Succeeds;
        }
        if !matches!(fate, Fate::Flipped(_)) {
            state.faults.contract_faults += 1;
        }
        fate
    }

    /// Changes a bit of metadata at its home location.
    fn decay(&self) {
        let mut sector = [0; SECTOR];
        for _ in 0..50 {
            let (at, bit) = {
                let rng = &mut self.state.lock().rng;
                (rng.below(self.size() / SECTOR as u64) * SECTOR as u64, rng.next())
            };
            self.medium.in_one_step(|| {
                self.medium.read_at(at, &mut [IoSliceMut::new(&mut sector)]).expect("a sector of the device");
            });
            if !self.journal.contains(&at) && metadata::is_likely(&sector) {
                metadata::flip(&mut sector, bit);
                self.medium.in_one_step(|| {
                    self.recorder.write_at(at, &[IoSlice::new(&sector)]).expect("a sector of the device");
                });
                self.state.lock().faults.contract_faults += 1;
                return;
            }
        }
    }

    /// Performs a request of a queue whose time has passed.
    ///
    /// # Errors
    /// As the call of the device.
    pub fn perform(&self, accepted: &Accepted, op: &mut Op) -> io::Result<()> {
        op.check(self)?;
        match op {
            Op::Read { offset, buf, len } => {
                self.read(accepted, *offset, &mut [IoSliceMut::new(&mut buf[..*len])])
            }
            Op::Write { offset, segments } => {
                let bufs = segments.iter().map(|segment| segment.bytes().map(IoSlice::new));
                self.write(accepted, *offset, &bufs.collect::<io::Result<Vec<_>>>()?)
            }
            Op::Flush => self.flush_now(accepted),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn read(&self, accepted: &Accepted, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.medium.check_power()?;
        note(Kind::Read(total(bufs.iter().map(|buf| buf.len()))), offset);
        match accepted.fate {
            Fate::Fails => return Err(failed()),
            Fate::Misdirected(elsewhere) => self.recorder.read_at(elsewhere, bufs)?,
            _ => self.recorder.read_at(offset, bufs)?,
        }
        if let Fate::Flipped(bit) = accepted.fate {
            let mut sectors = bufs.iter_mut().flat_map(|buf| buf.chunks_exact_mut(SECTOR));
            if let Some(sector) = sectors.find(|sector| metadata::is_likely(sector)) {
                metadata::flip(sector, bit);
                self.state.lock().faults.contract_faults += 1;
            }
        }
        Ok(())
    }

    fn write(&self, accepted: &Accepted, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.medium.check_power()?;
        note(Kind::Write(total(bufs.iter().map(|buf| buf.len()))), offset);
        bufs.iter().for_each(|buf| trace::add_bytes(buf));
        let result = match accepted.fate {
            Fate::Fails => {
                self.write_some(accepted.number);
                Err(failed())
            }
            Fate::Lost => Ok(()),
            Fate::Misdirected(elsewhere) => self.recorder.write_at(elsewhere, bufs),
            _ => self.recorder.write_at(offset, bufs),
        };
        self.state.lock().in_flight.remove(&accepted.number);
        result
    }

    /// Performs a write that fails for a random set of its sectors. The superblock is not written
    /// in part.
    fn write_some(&self, number: u64) {
        let Some((offset, bytes)) = self.state.lock().in_flight.get(&number).cloned() else { return };
        if offset < SUPERBLOCK.end && offset + bytes.len() as u64 > SUPERBLOCK.start {
            return;
        }
        self.medium.in_one_step(|| {
            for (nth, sector) in (0..).zip(bytes.chunks(SECTOR)) {
                if self.state.lock().rng.chance(50) {
                    let at = offset + nth * SECTOR as u64;
                    self.recorder.write_at(at, &[IoSlice::new(sector)]).expect("it was accepted");
                }
            }
        });
    }

    fn flush_now(&self, accepted: &Accepted) -> io::Result<()> {
        self.medium.check_power()?;
        note(Kind::Flush, 0);
        match accepted.fate {
            Fate::Fails => Err(failed()),
            Fate::Lost => Ok(()),
            // The time passes between the record of what the flush covers and the record of its
            // success.
            _ => self.recorder.flush(),
        }
    }
}

/// Returns true if the device breaks its contract in a request.
fn deceives(state: &mut RequestState) -> bool {
    state.may_fail && state.rng.below(DECEIVE_ONE_IN) == 0
}

fn failed() -> io::Error {
    io::Error::other("a simulated failure")
}

fn total(lens: impl Iterator<Item = usize>) -> u64 {
    lens.sum::<usize>() as u64
}

/// Adds a request to the trace.
fn note(kind: Kind, offset: u64) {
    let (code, len) = match kind {
        Kind::Read(len) => (1, len),
        Kind::Write(len) => (2, len),
        Kind::Flush => (3, 0),
        Kind::Discard => (4, 0),
    };
    let now = u64::try_from(now().unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
    [now, code, offset, len].into_iter().for_each(trace::add);
}

impl Device for SimulatedDevice {
    forward_device!(this => this.medium; size, sector_size, read_only);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let accepted = self.accept_request(Kind::Read(check::read(self, offset, bufs)?));
        sleep(accepted.latency);
        self.read(&accepted, offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        check::write(self, offset, bufs)?;
        let bytes = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let accepted = self.accept_write(offset, bytes);
        sleep(accepted.latency);
        self.write(&accepted, offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        let accepted = self.accept_request(Kind::Flush);
        self.flush_now(&accepted)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let accepted = self.accept_request(Kind::Discard);
        sleep(accepted.latency);
        self.medium.check_power()?;
        note(Kind::Discard, offset);
        self.recorder.discard(offset, len)
    }

    fn native_queue(self: Arc<Self>, _depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        Ok(Some(Box::new(SimulatedQueue::new(self))))
    }
}

//! The fault sweep: workloads that are repeated, each time with another request of the device failing, with less memory, or with less
//! free space.
//!
//! A run without faults records the state of the volume after each step. Then, in each case:
//!
//! 1. the caller sees the error, or the effect;
//! 2. a failed write or flush stops the volume, and after any other failure it can be used;
//! 3. the operations have released their ranges, pages, handles and reservations, and the engine leaves memory after the close;
//! 4. the images after a crash and after the close are consistent, hold what was synced, and otherwise a state of the run;
//! 5. the superblock tells of the error that stopped the volume.
//!
//! | module | contents |
//! |---|---|
//! | `run` | [`Run`]: the steps of a workload |
//! | `snapshot`, `states` | the contents of a volume, and which of them may be found |
//! | `point` | [`FaultPoint`]: what fails |
//! | `full` | volumes with few free blocks |
//! | `case` | one case, and its assertions |

mod case;
mod full;
mod point;
mod run;
mod snapshot;
mod states;

pub use point::{FaultPoint, Manner};
pub use run::Run;

use std::ops::RangeInclusive;
use std::sync::Arc;

use parext4::device::{FaultDevice, FaultKind, FaultPlan};
use parext4::{MemDevice, Result, Volume, VolumeOptions};

use crate::rng::Rng;
use crate::settings;
use crate::volume::{assert_clean, assert_no_findings, recover, untimed};
use crate::watchdog::Watchdog;
use case::Case;
use snapshot::Snapshot;
use states::States;

/// Seed of the sample of fault points unless the environment sets one.
const SEED: u64 = 20;
/// One case in this number is also checked by e2fsck.
const E2FSCK_ONE_IN: u64 = 50;

/// A sequence of operations that is the same in each run.
#[derive(Clone, Copy)]
pub struct Workload {
    /// The name of its test.
    pub name: &'static str,
    /// Makes the device before the run.
    pub base: fn() -> MemDevice,
    /// The options with which the volume is opened.
    pub options: fn() -> VolumeOptions,
    /// Runs the steps.
    pub run: fn(&mut Run<'_>) -> Result<()>,
}

/// Points of one kind: what fails, how, and in how many cases of a sample.
struct Family {
    kind: FaultKind,
    manner: Manner,
    little_memory: bool,
    sample: u64,
}

const fn family(kind: FaultKind, manner: Manner, sample: u64) -> Family {
    Family { kind, manner, little_memory: false, sample }
}

const FAMILIES: [Family; 12] = [
    family(FaultKind::Reads, Manner::Once, 2),
    family(FaultKind::Reads, Manner::Sticky, 1),
    family(FaultKind::Reads, Manner::Torn, 1),
    family(FaultKind::Writes, Manner::Once, 3),
    family(FaultKind::Writes, Manner::Sticky, 1),
    family(FaultKind::Writes, Manner::Torn, 1),
    family(FaultKind::Flushes, Manner::Once, 2),
    family(FaultKind::Flushes, Manner::Sticky, 1),
    family(FaultKind::Discards, Manner::Once, 1),
    family(FaultKind::Discards, Manner::Sticky, 1),
    family(FaultKind::Any, Manner::Sticky, 2),
    Family { kind: FaultKind::Any, manner: Manner::Once, little_memory: true, sample: 3 },
];
/// Cases of a sample with few free blocks.
const FULL_SAMPLE: u64 = 2;
/// Number of free blocks in a row with which a workload finds space, after which the sweep ends.
const ENOUGH: u64 = 3;

/// A workload, with what a run without faults has shown.
struct Sweep<'a> {
    workload: &'a Workload,
    base: MemDevice,
    states: States,
    journal: bool,
    /// Number of blocks that the workload needs.
    blocks: u64,
    watchdog: Watchdog,
    cases: u64,
}

/// Runs a workload with each fault, or with a sample, or with the one that `PAREXT4_FAULT` names.
///
/// # Panics
/// If something does not hold; with the command that repeats the case.
pub fn sweep(workload: &Workload) {
    case::count_panics();
    let mut sweep = Sweep::new(workload);
    if let Some(point) = settings::fault() {
        let point = point.parse().unwrap_or_else(|error| panic!("PAREXT4_FAULT: {error}"));
        let base = sweep.base_of(point).expect("a volume without free blocks");
        assert!(sweep.case(&base, point), "the workload ended before {point}");
        return;
    }
    let mut rng = Rng::new(settings::fixed_seed(workload.name, SEED), 0);
    for family in &FAMILIES {
        sweep.family(family, &mut rng);
    }
    sweep.full(&mut rng);
    eprintln!("{}: {} fault points", workload.name, sweep.cases);
}

impl<'a> Sweep<'a> {
    /// Records the states of a workload.
    fn new(workload: &'a Workload) -> Self {
        let base = (workload.base)();
        let first = {
            let volume = Volume::open_device(Arc::new(base.fork()), &untimed()).expect("the volume opens");
            let states = Snapshot::take(&volume, None).expect("the first state");
            let facts = (volume.info().journal, volume.space().free_blocks);
            volume.close().expect("the volume closes");
            (states, facts)
        };
        let (first, (journal, free)) = first;
        let memory = Arc::new(base.fork());
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as _, FaultPlan::default()));
        let mut run = Run::recording(&device, (workload.options)(), first);
        (workload.run)(&mut run).unwrap_or_else(|error| panic!("without a fault: {error}"));
        run.close().expect("the volume closes");
        recover(&memory);
        assert_no_findings(&*memory, "without a fault");
        assert_clean(&memory, "without a fault");
        let blocks = free.saturating_sub(run.least_free);
        let states = run.into_states();
        let watchdog = Watchdog::without_delays(workload.name, 0, 1);
        Self { workload, base, states, journal, blocks, watchdog, cases: 0 }
    }

    /// Returns the device before the run of a case.
    fn base_of(&self, point: FaultPoint) -> Option<MemDevice> {
        match point {
            FaultPoint::Full(_) => full::filled(&self.base),
            FaultPoint::Request { .. } => Some(self.base.fork()),
        }
    }

    fn case(&mut self, base: &MemDevice, point: FaultPoint) -> bool {
        let _repeat = Repeat(self.workload.name, point);
        let with_e2fsck = self.cases.is_multiple_of(E2FSCK_ONE_IN) || settings::fault().is_some();
        let Self { workload, states, journal, .. } = self;
        let case = Case { workload, base, states, point, journal: *journal, with_e2fsck };
        let is_hit = self.watchdog.watch(0, || case.run());
        self.cases += u64::from(is_hit);
        is_hit
    }

    /// Fails each request of a family, or a sample of them.
    fn family(&mut self, family: &Family, rng: &mut Rng) {
        let &Family { kind, manner, little_memory, sample } = family;
        let base = self.base.fork();
        let point = |number| FaultPoint::Request { kind, number, manner, little_memory };
        if settings::all() {
            // Threads in the background make the number of requests differ from run to run.
            (1..).take_while(|&number| self.case(&base, point(number))).for_each(drop);
            return;
        }
        let count = self.count(point(1));
        for number in some(1..=count, sample, rng) {
            self.case(&base, point(number));
        }
    }

    /// Returns the number of requests in a run without faults.
    fn count(&self, point: FaultPoint) -> u64 {
        let FaultPoint::Request { kind, .. } = point else { return 0 };
        let device = FaultDevice::new(Arc::new(self.base.fork()), FaultPlan::default().kind(kind));
        let device = Arc::new(device);
        let options = case::options(self.workload, point);
        let mut run = Run::with_states(&device, options, &self.states);
        (self.workload.run)(&mut run).unwrap_or_else(|error| panic!("without a fault: {error}"));
        run.close().expect("the volume closes");
        device.calls()
    }

    /// Runs the workload with each number of free blocks that does not suffice, or with some of them.
    fn full(&mut self, rng: &mut Rng) {
        let Some(base) = full::filled(&self.base) else { return };
        if !settings::all() {
            for free in some(0..=self.blocks, FULL_SAMPLE, rng) {
                self.case(&base, FaultPoint::Full(free));
            }
            return;
        }
        let mut enough = 0;
        for free in 0.. {
            enough = if self.case(&base, FaultPoint::Full(free)) { 0 } else { enough + 1 };
            if enough > ENOUGH && free > self.blocks {
                break;
            }
        }
    }
}

/// Returns at most `count` numbers of a range, one from each of equal parts.
fn some(range: RangeInclusive<u64>, count: u64, rng: &mut Rng) -> Vec<u64> {
    let (first, len) = (*range.start(), (range.end() + 1).saturating_sub(*range.start()));
    if len <= count {
        return range.collect();
    }
    let part = |nth| len * nth / count..len * (nth + 1) / count;
    (0..count).map(part).map(|part| first + part.start + rng.below(part.end - part.start)).collect()
}

/// Prints the command that repeats a case, if the case panics.
struct Repeat(&'static str, FaultPoint);

impl Drop for Repeat {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(name, point) = self;
            eprintln!("to repeat: cargo xtask faults --only {name} --point {point}");
        }
    }
}

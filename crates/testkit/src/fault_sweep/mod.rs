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
//! | `point`, `requests` | [`FaultPoint`]: what fails; which faults are tried |
//! | `devices` | [`Devices`]: the volume and its journal device, with faults and losses of power |
//! | `full` | volumes with few free blocks |
//! | `case` | one case, and its assertions |

mod case;
mod devices;
mod full;
mod point;
mod requests;
mod run;
mod snapshot;
mod states;

pub use devices::Devices;
pub use point::{FaultPoint, Manner};
pub use requests::{Family, sweep_requests};
pub use run::Run;

use parext4::device::{FaultKind, FaultPlan};
use parext4::{Result, VolumeOptions};

use crate::rng::Rng;
use crate::settings;
use crate::volume::assert_no_findings;
use case::Case;
use devices::FaultyDevices;
use requests::Cases;
use snapshot::Snapshot;
use states::States;

/// Of all cases, e2fsck also checks one in this number.
const E2FSCK_ONE_IN: u64 = 50;
/// Of the cases of a sample, e2fsck also checks one in this number.
const E2FSCK_ONE_IN_SAMPLE: u64 = 5;

/// A sequence of operations that is the same in each run.
#[derive(Clone, Copy)]
pub struct Workload {
    /// The name of its test.
    pub name: &'static str,
    /// Makes the devices before the run.
    pub base: fn() -> Devices,
    /// The options with which the volume is opened.
    pub options: fn() -> VolumeOptions,
    /// Runs the steps.
    pub run: fn(&mut Run<'_>) -> Result<()>,
}

/// The faults of each workload.
const FAMILIES: [Family; 12] = [
    Family::new(FaultKind::Reads, Manner::Once, 2),
    Family::new(FaultKind::Reads, Manner::Sticky, 1),
    Family::new(FaultKind::Reads, Manner::Torn, 1),
    Family::new(FaultKind::Writes, Manner::Once, 3),
    Family::new(FaultKind::Writes, Manner::Sticky, 1),
    Family::new(FaultKind::Writes, Manner::Torn, 1),
    Family::new(FaultKind::Flushes, Manner::Once, 2),
    Family::new(FaultKind::Flushes, Manner::Sticky, 1),
    Family::new(FaultKind::Discards, Manner::Once, 1),
    Family::new(FaultKind::Discards, Manner::Sticky, 1),
    Family::new(FaultKind::Any, Manner::Sticky, 2),
    Family::new(FaultKind::Any, Manner::Once, 3).with_little_memory(),
];
/// Cases of a sample with few free blocks.
const FULL_SAMPLE: u64 = 2;
/// Number of free blocks in a row with which a workload finds space, after which the sweep ends.
const ENOUGH: u64 = 3;

/// A workload, with what a run without faults has shown.
struct Sweep<'a> {
    workload: &'a Workload,
    base: Devices,
    states: States,
    journal: bool,
    protection: Option<u64>,
    /// Number of blocks that the workload needs.
    blocks: u64,
}

/// Runs a workload with each fault, or with a sample, or with the one that `PAREXT4_FAULT` names.
///
/// # Panics
/// If something does not hold; with the command that repeats the case.
pub fn sweep(workload: &Workload) {
    case::count_panics();
    let sweep = Sweep::new(workload);
    let seed = settings::seed(workload.name);
    let mut cases = Cases::new(workload.name, seed);
    if let Some(point) = Cases::only() {
        let base = sweep.base_of(point).expect("a volume without free blocks");
        let is_hit = cases.case(point, || sweep.case(&base, point, true));
        assert!(is_hit, "the workload ended before {point}");
        return;
    }
    let one_in = if settings::all() { E2FSCK_ONE_IN } else { E2FSCK_ONE_IN_SAMPLE };
    let mut rng = Rng::new(seed, 1);
    let mut run = |base: &Devices, point| sweep.case(base, point, rng.below(one_in) == 0);
    for family in FAMILIES {
        let run = |point| run(&sweep.base, point);
        cases.family(family, || sweep.count(family.point(1)), run);
    }
    sweep.full(&mut cases, run);
}

impl<'a> Sweep<'a> {
    /// Records the states of a workload.
    fn new(workload: &'a Workload) -> Self {
        let base = (workload.base)();
        let first = {
            let volume = base.fork().open().expect("the volume opens");
            let states = Snapshot::take(&volume, None).expect("the first state");
            let facts = (volume.info().journal, volume.space().free_blocks);
            volume.close().expect("the volume closes");
            (states, facts)
        };
        let (first, (journal, free)) = first;
        let protection = base.protection();
        let memory = base.fork();
        let devices = FaultyDevices::new(&memory, FaultPlan::default());
        let mut run = Run::recording(&devices, (workload.options)(), first);
        (workload.run)(&mut run).unwrap_or_else(|error| panic!("without a fault: {error}"));
        run.close().expect("the volume closes");
        memory.disown();
        let recovered = memory.open().and_then(|volume| volume.close());
        recovered.unwrap_or_else(|error| panic!("without a fault: the next open: {error}"));
        assert_no_findings(&*memory.volume, "without a fault");
        memory.assert_clean("without a fault");
        let blocks = free.saturating_sub(run.least_free);
        let states = run.into_states();
        Self { workload, base, states, journal, protection, blocks }
    }

    /// Returns the device before the run of a case.
    fn base_of(&self, point: FaultPoint) -> Option<Devices> {
        match point {
            FaultPoint::Full(_) => full::filled(&self.base),
            FaultPoint::Request { .. } => Some(self.base.fork()),
        }
    }

    fn case(&self, base: &Devices, point: FaultPoint, with_e2fsck: bool) -> bool {
        let &Self { workload, ref states, journal, protection, .. } = self;
        Case { workload, base, states, point, journal, protection, with_e2fsck }.run()
    }

    /// Returns the number of requests in a run without faults.
    fn count(&self, point: FaultPoint) -> u64 {
        let FaultPoint::Request { kind, .. } = point else { return 0 };
        let devices = FaultyDevices::new(&self.base.fork(), FaultPlan::default().kind(kind));
        let options = case::options(self.workload, point);
        let mut run = Run::with_states(&devices, options, &self.states);
        (self.workload.run)(&mut run).unwrap_or_else(|error| panic!("without a fault: {error}"));
        run.close().expect("the volume closes");
        devices.calls()
    }

    /// Runs the workload with each number of free blocks that does not suffice, or with some of them.
    fn full(&self, cases: &mut Cases, mut run: impl FnMut(&Devices, FaultPoint) -> bool) {
        let Some(base) = full::filled(&self.base) else { return };
        let mut case = |cases: &mut Cases, free| {
            let point = FaultPoint::Full(free);
            cases.case(point, || run(&base, point))
        };
        if !settings::all() {
            for free in cases.sample(0..=self.blocks, FULL_SAMPLE) {
                case(cases, free);
            }
            return;
        }
        let mut enough = 0;
        for free in 0.. {
            enough = if case(cases, free) { 0 } else { enough + 1 };
            if enough > ENOUGH && free > self.blocks {
                break;
            }
        }
    }
}

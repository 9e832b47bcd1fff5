//! The fault sweep: workloads that are repeated, each time with another request of the device
//! failing, with less memory, or with fewer blocks or inodes left.
//!
//! A run without faults records the state of the volume after each step. Then, in each case:
//!
//! 1. the caller sees the error, or the effect;
//! 2. a failed write or flush stops the volume, and after any other failure it can be used;
//! 3. the operations have released their ranges, pages, handles and reservations, and the engine
//!    leaves memory after the close;
//! 4. the images after a crash and after the close are consistent, hold what was synced, and
//!    otherwise a state of the run;
//! 5. the superblock tells of the error that stopped the volume.
//!
//! | module | contents |
//! |---|---|
//! | `run` | [`Run`]: the steps of a workload |
//! | `snapshot`, `states` | the contents of a volume, and which of them may be found |
//! | `point`, `requests` | [`FaultPoint`]: what fails; which faults are tried |
//! | `devices` | [`Devices`]: the volume and its journal device, with faults and losses of power |
//! | `shortage` | [`Resource`]: what runs out; volumes on which it does |
//! | `case` | one case, and its assertions |

mod case;
mod devices;
mod point;
mod requests;
mod run;
mod shortage;
mod snapshot;
mod states;

pub use devices::Devices;
pub use point::{FaultPoint, Manner};
pub use requests::{Family, sweep_requests};
pub use run::Run;
pub use shortage::Resource;

use std::ops::Range;

use parext4::device::{FaultKind, FaultPlan};
use parext4::{Result, VolumeOptions};

use crate::rng::Rng;
use crate::settings;
use crate::skip_allowed;
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
/// What runs out: whether the volume also has the least memory, and the number of cases of a
/// sample.
const SHORTAGES: [(Resource, &[(bool, u64)]); 4] = [
    (Resource::Blocks, &[(false, 3), (true, 1)]),
    (Resource::Inodes, &[(false, 1)]),
    (Resource::QuotaBlocks, &[(false, 1)]),
    (Resource::QuotaInodes, &[(false, 1)]),
];
/// Number of cases in a row in which nothing runs out, after which the sweep ends.
const ENOUGH: u64 = 3;

/// A workload, with what a run without faults has shown.
struct Sweep<'a> {
    workload: &'a Workload,
    base: Devices,
    states: States,
    journal: bool,
    protection: Option<u64>,
    /// Numbers of blocks and of inodes that the workload needs.
    needs: (u64, u64),
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
        let base = sweep.base_of(point);
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
    for (resource, samples) in SHORTAGES {
        sweep.shortages(resource, samples, &mut cases, &mut run);
    }
}

impl<'a> Sweep<'a> {
    /// Records the states of a workload.
    fn new(workload: &'a Workload) -> Self {
        let base = (workload.base)();
        let first = {
            let volume = base.fork().open().expect("the volume opens");
            let states = Snapshot::take(&volume, None).expect("the first state");
            let facts = (volume.info().journal, run::free(&volume));
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
        let needs = (free.0.saturating_sub(run.least_free.0), free.1.saturating_sub(run.least_free.1));
        let states = run.into_states();
        Self { workload, base, states, journal, protection, needs }
    }

    /// Returns the device before the run of a case.
    fn base_of(&self, point: FaultPoint) -> Devices {
        point.resource().map_or_else(
            || self.base.fork(),
            |resource| resource.prepare(&self.base).expect("a volume that runs out of it"),
        )
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

    /// Runs the workload with each number of blocks or inodes that does not suffice, or with a
    /// sample of the numbers.
    fn shortages(
        &self,
        resource: Resource,
        samples: &[(bool, u64)],
        cases: &mut Cases,
        mut run: impl FnMut(&Devices, FaultPoint) -> bool,
    ) {
        let needed = self.needed(resource);
        if needed == 0 && !settings::all() {
            return;
        }
        let base = match resource.prepare(&self.base) {
            Ok(base) => base,
            Err(why) => return skip_allowed(&format!("{}, {resource:?}: {why}", self.workload.name)),
        };
        let numbers = resource.numbers(&base, needed);
        for &(little_memory, sample) in samples {
            let point = |left| FaultPoint::Shortage { resource, left, little_memory };
            each_shortage(cases, &numbers, sample, point, |point| run(&base, point));
        }
    }

    /// Returns the number of blocks or inodes that the workload needs, as far as the volume shows
    /// it between two steps.
    fn needed(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Blocks | Resource::QuotaBlocks => self.needs.0,
            Resource::Inodes | Resource::QuotaInodes => self.needs.1,
        }
    }
}

/// Runs the cases of `point` with each number that does not suffice: all of `numbers`, and more. Or
/// a sample of `numbers`.
fn each_shortage(
    cases: &mut Cases,
    numbers: &Range<u64>,
    sample: u64,
    point: impl Fn(u64) -> FaultPoint,
    mut run: impl FnMut(FaultPoint) -> bool,
) {
    let mut case = |cases: &mut Cases, left| cases.case(point(left), || run(point(left)));
    if !settings::all() {
        for left in cases.sample(numbers.start..=numbers.end - 1, sample) {
            case(cases, left);
        }
        return;
    }
    let mut enough = 0;
    for left in numbers.start.. {
        enough = if case(cases, left) { 0 } else { enough + 1 };
        if enough > ENOUGH && left > numbers.end {
            break;
        }
    }
}

/// Repeats an action that needs about `needed` blocks or inodes of the volume `base`, each time
/// with another number of them left. `run` returns false if nothing ran out.
///
/// # Panics
/// If `run` panics; with the command that repeats the case.
pub fn sweep_shortages(
    name: &'static str,
    resource: Resource,
    base: &Devices,
    needed: u64,
    mut run: impl FnMut(&Devices, FaultPoint) -> bool,
) {
    const SAMPLE: u64 = 3;
    let base = resource.prepare(base).expect("a volume that runs out of it");
    let mut cases = Cases::new(name, settings::seed(name));
    let mut run = |point| {
        let devices = base.fork();
        let FaultPoint::Shortage { left, .. } = point else { panic!("{point} is no shortage") };
        resource.leave(&devices, left) && run(&devices, point)
    };
    if let Some(point) = Cases::only() {
        assert!(cases.case(point, || run(point)), "nothing ran out: {point}");
        return;
    }
    let point = |left| FaultPoint::Shortage { resource, left, little_memory: false };
    each_shortage(&mut cases, &resource.numbers(&base, needed), SAMPLE, point, run);
}

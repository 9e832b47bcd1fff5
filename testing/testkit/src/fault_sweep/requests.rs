//! Which requests a sweep fails, and how: families of fault points, of which each has a sample.

use std::ops::RangeInclusive;

use parext4::device::FaultKind;

use super::point::{FaultPoint, Manner};
use crate::rng::Rng;
use crate::settings;
use crate::watchdog::Watchdog;

/// Points of one kind: what fails, how, and in how many cases of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    kind: FaultKind,
    manner: Manner,
    little_memory: bool,
    sample: u64,
}

impl Family {
    /// Returns the requests of a kind, with the number of cases of a sample.
    pub const fn new(kind: FaultKind, manner: Manner, sample: u64) -> Self {
        Self { kind, manner, little_memory: false, sample }
    }

    /// Returns the same requests of a volume with the least memory.
    #[must_use]
    pub const fn with_little_memory(self) -> Self {
        Self { little_memory: true, ..self }
    }

    /// Returns the point that fails request `number`.
    pub fn point(&self, number: u64) -> FaultPoint {
        let &Self { kind, manner, little_memory, .. } = self;
        FaultPoint::Request { kind, number, manner, little_memory }
    }
}

/// The cases of a workload.
pub struct Cases {
    name: &'static str,
    rng: Rng,
    watchdog: Watchdog,
    /// Number of cases in which the fault was reached.
    pub hit: u64,
}

impl Cases {
    /// Begins the cases of the workload `name`, with a sample that `seed` chooses.
    pub fn new(name: &'static str, seed: u64) -> Self {
        Self { name, rng: Rng::new(seed, 0), watchdog: Watchdog::without_delays(name, 0, 1), hit: 0 }
    }

    /// Returns the only point to try, if the environment names one.
    pub fn only() -> Option<FaultPoint> {
        let point = settings::fault()?;
        Some(point.parse().unwrap_or_else(|error| panic!("PAREXT4_FAULT: {error}")))
    }

    /// Runs one case, which must end. Prints the command that repeats it if it panics. `run`
    /// returns false if it ended before the fault.
    pub fn case(&mut self, point: FaultPoint, run: impl FnOnce() -> bool) -> bool {
        let _repeat = Repeat(self.name, point);
        let is_hit = self.watchdog.watch(0, run);
        self.hit += u64::from(is_hit);
        is_hit
    }

    /// Returns at most `count` numbers of a range, and at most as many as a sample may have, one
    /// from each of equal parts.
    pub fn sample(&mut self, range: RangeInclusive<u64>, count: u64) -> Vec<u64> {
        let count = count.min(settings::fault_sample());
        let (first, len) = (*range.start(), (range.end() + 1).saturating_sub(*range.start()));
        if len <= count {
            return range.collect();
        }
        let part = |nth| len * nth / count;
        (0..count).map(|nth| first + part(nth) + self.rng.below(part(nth + 1) - part(nth))).collect()
    }

    /// Fails each request of a family, or a sample of them. `count` returns their number in a run
    /// without faults.
    pub fn family(
        &mut self,
        family: Family,
        count: impl FnOnce() -> u64,
        mut run: impl FnMut(FaultPoint) -> bool,
    ) {
        if settings::all() {
            // Threads in the background make the number of requests differ from run to run.
            let mut fails = |number| {
                let point = family.point(number);
                self.case(point, || run(point))
            };
            (1..).take_while(|&number| fails(number)).for_each(drop);
            return;
        }
        for number in self.sample(1..=count(), family.sample) {
            let point = family.point(number);
            self.case(point, || run(point));
        }
    }
}

impl Drop for Cases {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            eprintln!("{}: {} fault points", self.name, self.hit);
        }
    }
}

/// Repeats an action, each time with another request failing. `count` returns the number of
/// requests of a kind without faults; `run` returns false if it ended before the fault.
///
/// # Panics
/// If `run` panics; with the command that repeats the case.
pub fn sweep_requests(
    name: &'static str,
    families: &[Family],
    mut count: impl FnMut(FaultKind) -> u64,
    mut run: impl FnMut(FaultPoint) -> bool,
) {
    let mut cases = Cases::new(name, settings::seed(name));
    if let Some(point) = Cases::only() {
        assert!(cases.case(point, || run(point)), "it ended before {point}");
        return;
    }
    for &family in families {
        cases.family(family, || count(family.kind), &mut run);
    }
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

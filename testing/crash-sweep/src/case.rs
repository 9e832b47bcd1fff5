//! One case of the sweep: what is run, on which format. Its name repeats it.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use anyhow::{Context, Error, Result, bail};
use parext4::MemDevice;
use testkit::ops::Step;
use testkit::rng::Rng;

use crate::experiment::Experiment;
use crate::generate::{add_timed, random, sequence};
use crate::history::{self, History};
use crate::kind::{KINDS, Kind};
use crate::sequence::Sequence;
use crate::upkeep::Upkeep;

/// What a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Sequence `number` of all of one step.
    One,
    /// Sequence `number` of all of two steps.
    Two,
    /// Three random steps of seed `number`.
    Three,
    /// Up to 12 random steps of seed `number`, in a log that may be full.
    Long,
    /// A history of threads of seed `number`.
    Threads,
    /// A volume made over another one, `number` of all.
    Make,
    /// A recovery that deletes orphans, of seed `number`.
    Orphans,
}

/// All kinds of work, and their names.
const WORKS: [(Work, &str); 7] = [
    (Work::One, "one"),
    (Work::Two, "two"),
    (Work::Three, "three"),
    (Work::Long, "long"),
    (Work::Threads, "threads"),
    (Work::Make, "make"),
    (Work::Orphans, "orphans"),
];

/// Percentage of the random sequences on volumes with timed commits.
const TIMED: u64 = 20;

/// A case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The format of the volume.
    pub kind: &'static Kind,
    /// Which steps are run.
    pub work: Work,
    /// Which of all sequences, or the seed.
    pub number: u64,
}

impl Case {
    /// Returns the steps of a case of one thread; `None` if one of them would fail.
    pub fn steps(&self) -> Option<Vec<Step>> {
        let mut steps = match self.work {
            Work::One => sequence(1, self.number)?,
            Work::Two => sequence(2, self.number)?,
            Work::Three => random(&mut Rng::new(self.number, 3), 3, |op| self.kind.supports(op)),
            Work::Long => {
                let mut rng = Rng::new(self.number, 4);
                let length = 4 + usize::try_from(rng.below(9)).expect("few");
                random(&mut rng, length, |op| self.kind.supports(op))
            }
            Work::Threads | Work::Make | Work::Orphans => return None,
        };
        let mut rng = Rng::new(self.number, 8);
        if matches!(self.work, Work::Three | Work::Long) && rng.chance(TIMED) {
            add_timed(&mut steps, &mut rng);
        }
        steps.iter().all(|(op, _)| self.kind.supports(op)).then_some(steps)
    }

    /// Returns the number of commits before the steps. With about 170 the log is half full, and
    /// with 340 it begins again.
    pub fn commits(&self) -> u64 {
        if self.work == Work::Long { Rng::new(self.number, 7).below(400) } else { 0 }
    }

    /// Runs the case. `None` if one of its steps would fail.
    ///
    /// # Errors
    /// A call that failed.
    pub fn run(&self) -> Result<Option<Box<dyn Experiment>>, String> {
        let mut rng = Rng::new(self.number, 6);
        match self.work {
            Work::Threads => {
                let history = History::record(base_of_threads(self.kind), self.kind, self.number)?;
                return Ok(Some(Box::new(history)));
            }
            Work::Make => {
                let old = &KINDS[usize::try_from(self.number).expect("few kinds") % KINDS.len()];
                return Ok(Some(Box::new(Upkeep::make(base(old), self.kind)?)));
            }
            Work::Orphans => return Ok(Some(Box::new(Upkeep::delete_orphans(base(self.kind), &mut rng)?))),
            Work::One | Work::Two | Work::Three | Work::Long => {}
        }
        let Some(steps) = self.steps() else { return Ok(None) };
        Ok(Some(Box::new(Sequence::record(base(self.kind), &steps, self.commits())?)))
    }
}

/// Volumes by format.
type Bases = [OnceLock<MemDevice>; KINDS.len()];

/// Returns the volume of a format before any step.
pub fn base(kind: &Kind) -> &'static MemDevice {
    static BASES: Bases = [const { OnceLock::new() }; KINDS.len()];
    BASES[kind.index()].get_or_init(|| kind.base(&[String::new()], 0))
}

fn base_of_threads(kind: &Kind) -> &'static MemDevice {
    static BASES: Bases = [const { OnceLock::new() }; KINDS.len()];
    BASES[kind.index()].get_or_init(|| history::base(kind))
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = WORKS.iter().find(|(work, _)| *work == self.work).map_or("", |(_, name)| name);
        write!(f, "{}/{name}/{}", self.kind.name, self.number)
    }
}

impl FromStr for Case {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<_> = text.split('/').collect();
        let [kind, work, number] = parts[..] else { bail!("a case is KIND/WORK/NUMBER, not {text}") };
        let kind = Kind::named(kind).with_context(|| format!("no kind {kind}"))?;
        let (work, _) =
            WORKS.iter().find(|(_, name)| *name == work).with_context(|| format!("no work {work}"))?;
        Ok(Self { kind, work: *work, number: number.parse().context("the number of the case")? })
    }
}

//! Failures: their states are shrunk, and shown with a command that repeats them.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use parext4::MemDevice;
use testkit::cut::{Cut, Kept};
use testkit::ops::{Persist, Step};
use testkit::rng::Rng;

use crate::case::{Case, base};
use crate::experiment::Experiment;
use crate::generate::are_possible;
use crate::kind::open;
use crate::record::Density;
use crate::recovery::interrupt;
use crate::sequence::Sequence;
use crate::verify::{Peers, verify};

/// How a state is checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// What else recovers it.
    pub peers: Peers,
    /// Seed of power cuts during its recovery.
    pub interrupt: Option<u64>,
}

/// How a state was checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// What else has recovered it.
    pub peers: Peers,
    /// Number of states of its recovery.
    pub recoveries: u64,
}

/// Checks one state of an experiment.
///
/// # Errors
/// What is wrong.
pub fn check(
    experiment: &dyn Experiment,
    cut: &Cut,
    image: MemDevice,
    look: Look,
) -> Result<Checked, String> {
    without_panic(|| {
        if experiment.may_be_refused(cut) && open(&Arc::new(image.fork())).is_err() {
            return Ok(Checked::default());
        }
        let crashed = look.interrupt.map(|seed| (image.fork(), seed));
        let (tree, peers) = verify(image, look.peers, |tree| experiment.check(cut, tree))?;
        let interrupted = crashed.map(|(image, seed)| interrupt(&image, &tree, &mut Rng::new(seed, 4)));
        Ok(Checked { peers, recoveries: interrupted.transpose()?.unwrap_or(0) })
    })
}

/// Calls `run`, and returns a panic as an error.
///
/// # Errors
/// The errors of `run`, and the message of a panic.
pub fn without_panic<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(format!("panicked: {}", PANIC.take().unwrap_or_default())))
}

thread_local! {
    /// The message of the last panic of the thread.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the messages of panics for [`without_panic`], instead of printing them.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| PANIC.set(Some(info.to_string()))));
}

/// A state that is wrong.
#[derive(Debug)]
pub struct Failure {
    case: Case,
    look: Look,
    cut: Option<Cut>,
    steps: String,
    error: String,
    /// The volume before and after the crash.
    images: Option<(MemDevice, MemDevice)>,
    /// The writes and flushes.
    events: String,
}

impl Failure {
    /// Returns the failure of a case that cannot be recorded.
    pub fn of_run(case: Case, error: String) -> Self {
        let steps = case.steps().map_or_else(String::new, |steps| format!("{steps:?}"));
        Self { case, look: Look::default(), cut: None, steps, error, images: None, events: String::new() }
    }

    /// Returns the failure of one state, with as few steps and writes as still fail.
    pub fn of_state(case: Case, experiment: &dyn Experiment, cut: Cut, look: Look, error: String) -> Self {
        let shrunk = case.steps().and_then(|steps| fewer_steps(&case, steps, look));
        let (experiment, cut, error) = match &shrunk {
            Some((sequence, cut, error)) => (sequence as &dyn Experiment, cut.clone(), error.clone()),
            None => (experiment, cut, error),
        };
        let (cut, error) = fewer_writes(experiment, cut, look, error);
        let recording = experiment.recording();
        let images = Some((recording.base.fork(), recording.image(&cut)));
        let (steps, events) = (experiment.describe(), recording.describe());
        Self { case, look, cut: Some(cut), steps, error, images, events }
    }

    /// Writes the volume before and after the crash, and what was recorded, to a folder below
    /// `dir`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn keep(&self, dir: &Path, seed: u64) -> io::Result<()> {
        let dir = dir.join(self.case.to_string().replace('/', "-"));
        std::fs::create_dir_all(&dir)?;
        if let Some((before, after)) = &self.images {
            before.save(dir.join("before.img"))?;
            after.save(dir.join("after.img"))?;
        }
        std::fs::write(dir.join("history.txt"), format!("{}\n{}", self.text(seed), self.events))?;
        println!("kept in {}", dir.display());
        Ok(())
    }

    /// Returns the text to show.
    pub fn text(&self, seed: u64) -> String {
        let cut = self.cut.as_ref().map_or_else(|| "no crash".to_owned(), ToString::to_string);
        let Self { case, look, steps, error, .. } = self;
        format!(
            "{case}: {error}\n{steps}\n  {cut}; {look:?}\n  repeat it: cargo xtask crash --seed {seed} --case {case}"
        )
    }
}

type Failing = (Sequence, Cut, String);

/// Leaves out steps and syncs while a state still fails.
fn fewer_steps(case: &Case, mut steps: Vec<Step>, look: Look) -> Option<Failing> {
    let mut failing = failing_state(case, &steps, look)?;
    let mut nth = 0;
    while nth < steps.len() {
        let (mut fewer, mut weaker) = (steps.clone(), steps.clone());
        fewer.remove(nth);
        weaker[nth].1 = Persist::None;
        let shorter = if fewer.is_empty() { None } else { failing_state(case, &fewer, look) };
        if let Some(found) = shorter {
            (failing, steps) = (found, fewer);
            continue;
        }
        if steps[nth].1 != Persist::None
            && let Some(found) = failing_state(case, &weaker, look)
        {
            (failing, steps) = (found, weaker);
        }
        nth += 1;
    }
    Some(failing)
}

/// Returns the first state of a sequence that fails.
fn failing_state(case: &Case, steps: &[Step], look: Look) -> Option<Failing> {
    if !are_possible(steps) {
        return None;
    }
    let sequence = Sequence::record(base(case.kind), steps, case.commits()).ok()?;
    let cuts = sequence.recording().cuts(sequence.first(), Density::All, &mut Rng::new(case.number, 5));
    let result = sequence.recording().each(&cuts, |cut, image| check(&sequence, cut, image, look).map(drop));
    let (cut, error) = result.err()?;
    Some((sequence, cut, error))
}

/// Leaves out writes, and tears fewer, while the state still fails.
fn fewer_writes(experiment: &dyn Experiment, mut cut: Cut, look: Look, mut error: String) -> (Cut, String) {
    let mut nth = 0;
    while nth < cut.kept.len() {
        let (mut fewer, mut whole) = (cut.clone(), cut.clone());
        fewer.kept.remove(nth);
        whole.kept[nth].1 = Kept::Whole;
        let still = |cut: &Cut| check(experiment, cut, experiment.recording().image(cut), look).err();
        if let Some(found) = still(&fewer) {
            (cut, error) = (fewer, found);
            continue;
        }
        if whole != cut
            && let Some(found) = still(&whole)
        {
            (cut, error) = (whole, found);
        }
        nth += 1;
    }
    (cut, error)
}

//! A history of threads, recorded: each has a tree of its own, and all of them change the files of `shared`.
//!
//! The seed determines what each thread does, and the system how the threads interleave. Besides the promises of each thread's
//! calls, a sync or a commit by one thread is certain to include what the other threads had done before, and operations on
//! names are found in their order across threads: if one is found, so is each that returned before it began.

use std::fmt::Write as _;
use std::sync::Arc;
use std::thread;

use parext4::{Device, MemDevice, Volume};
use testkit::cut::Cut;
use testkit::history::Clock;
use testkit::rng::Rng;

use crate::experiment::Experiment;
use crate::generate::random;
use crate::kind::{Kind, options};
use crate::op::{Persist, Step};
use crate::oracle::{Durable, Oracle};
use crate::record::{Recorder, Recording};
use crate::run::{Runner, commit};
use crate::shared::{self, Change, Shared};
use crate::tree::{MAX_THREADS, Tree, byte};

use std::time::Duration;

/// Size of the volumes, in MiB.
pub const MIB: u64 = 8;
/// Interval of timed commits and write-back, in the histories that have them.
const INTERVAL: Duration = Duration::from_millis(2);
/// The most steps of a thread.
const STEPS: u64 = 10;

/// Returns the directory of each thread's tree.
pub fn roots() -> Vec<String> {
    (0..MAX_THREADS).map(|thread| format!("/t{thread}")).collect()
}

/// Returns a volume with the trees of all threads and the files that they share.
///
/// # Panics
/// If it cannot be made.
pub fn base(kind: &Kind) -> MemDevice {
    let device = Arc::new(kind.base(&roots(), MIB));
    let volume = crate::kind::open(&device).expect("the volume opens");
    shared::make(&volume, kind.has_extents()).expect("the shared files");
    volume.close().expect("close");
    device.fork()
}

/// What a thread does.
#[derive(Debug)]
struct Plan {
    steps: Vec<Step>,
    /// By step: the changes of shared files before it.
    changes: Vec<Vec<Change>>,
}

/// A step of a thread: when it ran.
#[derive(Clone, Copy, Debug)]
struct Ran {
    /// Events and time before the operation.
    begun: (usize, u64),
    /// Time after the operation.
    over: u64,
    /// Time before, and events after, the call that makes it durable.
    persisted: (u64, usize),
}

/// The history of a thread.
#[derive(Debug)]
struct Thread {
    root: String,
    plan: Plan,
    oracle: Oracle,
    ran: Vec<Ran>,
}

/// A history.
#[derive(Debug)]
pub struct History {
    recording: Recording,
    threads: Vec<Thread>,
    shared: Shared,
    /// Events before the threads began.
    first: usize,
    /// Events when the volume was closed.
    closed: Option<usize>,
}

impl History {
    /// Runs the history of a seed on a copy of `base`.
    ///
    /// # Errors
    /// A call that failed.
    pub fn record(base: &MemDevice, kind: &Kind, seed: u64) -> Result<Self, String> {
        let mut rng = Rng::new(seed, 100);
        let mut threads = plan(kind, &mut rng);
        let recorder = if rng.chance(50) { Recorder::new(base) } else { Recorder::with_threads(base) };
        let mut options = options();
        if rng.chance(30) {
            options = options.commit_interval(INTERVAL).write_back_interval(INTERVAL);
        }
        let device = Arc::clone(&recorder) as Arc<dyn Device>;
        let volume = Volume::open_device(device, &options).map_err(|e| format!("open: {e}"))?;
        if rng.chance(50) {
            // The checkpoint begins when the log is half full.
            (0..rng.below(400)).try_for_each(|_| commit(&volume)).map_err(|e| format!("commit: {e}"))?;
        }
        let first = recorder.events();
        let clock = Arc::new(Clock::default());
        let shared = Shared::new(Arc::clone(&clock), Arc::clone(&recorder));
        let run = Run { volume: &volume, recorder: &recorder, clock: &clock, shared: &shared };
        thread::scope(|scope| {
            let running: Vec<_> = (0..)
                .zip(&mut threads)
                .map(|(number, thread)| {
                    let run = &run;
                    scope.spawn(move || run.thread(number, thread))
                })
                .collect();
            let results = running.into_iter().map(|thread| thread.join().expect("no thread panics"));
            results.collect::<Result<Vec<_>, _>>()
        })?;
        let mut closed = None;
        if rng.chance(50) {
            let began = clock.tick();
            volume.close().map_err(|e| format!("close: {e}"))?;
            shared.volume_synced(began);
            closed = Some(recorder.events());
        } else {
            // What dropping the volume writes is recorded, too.
            drop(volume);
        }
        let recording = Recording::new(base.fork(), &recorder);
        Ok(Self { recording, threads, shared, first, closed })
    }

    /// Returns what is certain of thread `number`'s tree after a crash before event `latest`.
    fn durable(&self, number: usize, latest: usize) -> Durable {
        let thread = &self.threads[number];
        let mut durable = Durable::default();
        if self.closed.is_some_and(|events| events <= latest) {
            durable = thread.oracle.all(thread.ran.len());
        }
        for (other, ran, (_, persist)) in self.persisted_by(latest) {
            let before = thread.ran.partition_point(|own| own.over < ran.persisted.0);
            match persist {
                Persist::Volume => durable.merge(&thread.oracle.all(before)),
                Persist::Commit | Persist::Empty(_) => durable.names = durable.names.max(before),
                _ if other == number => {
                    // Steps of one thread follow each other, so the step before the call is the last one.
                    durable.merge(&thread.oracle.persisted(before - 1, persist));
                }
                _ => {}
            }
        }
        durable
    }

    /// Returns the steps whose persistence returned before event `latest`, with the number of their thread.
    fn persisted_by(&self, latest: usize) -> impl Iterator<Item = (usize, Ran, Step)> {
        self.threads.iter().enumerate().flat_map(move |(number, thread)| {
            let steps = thread.ran.iter().zip(&thread.plan.steps);
            steps
                .filter(move |(ran, _)| ran.persisted.1 <= latest)
                .map(move |(ran, step)| (number, *ran, *step))
        })
    }

    /// Checks that operations on names are found in their order. `found` has the first and the last point that each thread's names
    /// may be of.
    fn check_order(&self, found: &[(usize, usize)]) -> Result<(), String> {
        for (later, &(least, _)) in self.threads.iter().zip(found) {
            let Some(last) = least.checked_sub(1) else { continue };
            let began = later.ran[last].begun.1;
            for (earlier, &(_, most)) in self.threads.iter().zip(found) {
                let before = earlier.ran.partition_point(|ran| ran.over < began);
                if most < before {
                    let lost = earlier.plan.steps[most].0;
                    let kept = later.plan.steps[last].0;
                    return Err(format!(
                        "{lost:?} below {} is lost, but {kept:?} below {}, which began later, is there",
                        earlier.root, later.root
                    ));
                }
            }
        }
        Ok(())
    }
}

fn plan(kind: &Kind, rng: &mut Rng) -> Vec<Thread> {
    let count = 2 + u8::try_from(rng.below(u64::from(MAX_THREADS) - 1)).expect("few threads");
    (0..count)
        .map(|number| {
            let len = usize::try_from(1 + rng.below(STEPS)).expect("few steps");
            let steps = random(rng, len, |op| kind.supports(op));
            let changes = steps
                .iter()
                .map(|_| (0..rng.below(4)).map(|_| Change::random(rng, number, kind.has_extents())).collect())
                .collect();
            let oracle = Oracle::new(number, &steps);
            Thread { root: format!("/t{number}"), plan: Plan { steps, changes }, oracle, ran: Vec::new() }
        })
        .collect()
}

/// A history under way.
struct Run<'a> {
    volume: &'a Volume,
    recorder: &'a Recorder,
    clock: &'a Clock,
    shared: &'a Shared,
}

impl Run<'_> {
    fn thread(&self, number: u8, thread: &mut Thread) -> Result<(), String> {
        let Thread { root, plan, ran, .. } = thread;
        let mut runner = Runner::new(self.volume, root);
        let mut handles = self.shared.handles(self.volume, number).map_err(|e| format!("open: {e}"))?;
        for (nth, ((op, persist), changes)) in (0..).zip(plan.steps.iter().zip(&plan.changes)) {
            for change in changes {
                handles.run(*change).map_err(|e| format!("{root}: {change:?}: {e}"))?;
            }
            let begun = (self.recorder.events(), self.clock.tick());
            runner.run(op, byte(number, nth)).map_err(|e| format!("{root}: {op:?}: {e}"))?;
            let over = self.clock.tick();
            let began = self.clock.tick();
            runner.persist(op, *persist).map_err(|e| format!("{root}: {persist:?} after {op:?}: {e}"))?;
            if *persist == Persist::Volume {
                self.shared.volume_synced(began);
            }
            ran.push(Ran { begun, over, persisted: (began, self.recorder.events()) });
        }
        Ok(())
    }
}

impl Experiment for History {
    fn recording(&self) -> &Recording {
        &self.recording
    }

    fn first(&self) -> usize {
        self.first
    }

    fn check(&self, cut: &Cut, tree: &Tree) -> Result<(), String> {
        let mut found = Vec::new();
        for (number, thread) in self.threads.iter().enumerate() {
            let durable = self.durable(number, cut.latest());
            let begun = thread.ran.partition_point(|ran| ran.begun.0 <= cut.earliest());
            let points = thread.oracle.check(&tree.below(&thread.root), &durable, begun);
            let points = points.map_err(|e| format!("{}: {e}", thread.root))?;
            found.push((*points.first().expect("a point"), *points.last().expect("a point")));
        }
        self.check_order(&found)?;
        self.shared.check(tree, cut.earliest(), cut.latest())
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for thread in &self.threads {
            for ((step, changes), ran) in thread.plan.steps.iter().zip(&thread.plan.changes).zip(&thread.ran)
            {
                let _ = writeln!(text, "  {}: {changes:?}, {step:?}, {ran:?}", thread.root);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Look, check};
    use crate::kind::KINDS;
    use crate::record::Density;

    /// Returns the number of states that fail, of 10.
    fn failures(history: &History) -> usize {
        let cuts = history.recording.cuts(history.first, Density::Sample(10), &mut Rng::new(1, 1));
        let failed = |cut: &&Cut| check(history, cut, history.recording.image(cut), Look::default()).is_err();
        cuts.iter().filter(failed).count()
    }

    #[test]
    fn a_device_that_ignores_flushes_is_noticed() {
        let base = base(&KINDS[0]);
        for seed in 0..2 {
            let mut history = History::record(&base, &KINDS[0], seed).expect("the history");
            assert_eq!(failures(&history), 0);
            history.recording.ignore_flushes();
            assert!(failures(&history) > 0, "seed {seed}");
        }
    }

    #[test]
    fn names_are_found_in_their_order() {
        let base = base(&KINDS[0]);
        let history = History::record(&base, &KINDS[0], 0).expect("the history");
        let all: Vec<_> = history.threads.iter().map(|thread| (thread.ran.len(), thread.ran.len())).collect();
        assert!(history.check_order(&all).is_ok());
        let first = history.threads.iter().map(|thread| thread.ran[0].over);
        let (earliest, _) = first.enumerate().min_by_key(|(_, over)| *over).expect("a thread");
        let mut found = all;
        found[earliest] = (0, 0);
        assert!(
            history.check_order(&found).is_err(),
            "the first operation is lost, and later ones are found"
        );
    }
}

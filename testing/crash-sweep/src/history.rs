//! A history of threads, recorded: each has a tree of its own and names of its own in one
//! directory, and all of them change the files of `shared`.
//!
//! The seed determines what each thread does, and the system how the threads interleave. Besides
//! the promises of each thread's calls, a sync or a commit by one thread is certain to include what
//! the other threads had done before, and operations on names are found in their order across
//! threads: if one is found, so is each that returned before it began.

use std::fmt::Write as _;
use std::sync::Arc;
use std::thread;

use parext4::{Device, MemDevice, Volume};
use testkit::cut::Cut;
use testkit::history::Clock;
use testkit::ops::runner::commit;
use testkit::ops::{Durable, Oracle, Persist, Runner, Step, Tree};
use testkit::rng::Rng;

use crate::experiment::Experiment;
use crate::generate::{add_timed, random_from};
use crate::kind::{INTERVAL, Kind, options};
use crate::record::{Recorder, Recording};
use crate::shared::{self, Change, Shared};
use crate::start::{COMMON, MAX_THREADS, below, content, initial_with_common, oracle, path_on_volume};

/// Size of the volumes, in MiB.
pub const MIB: u64 = 8;
/// The most steps of a thread.
const STEPS: u64 = 10;

/// Returns the directory of each thread's tree.
pub fn roots() -> Vec<String> {
    (0..MAX_THREADS).map(|thread| format!("/t{thread}")).collect()
}

/// Returns a volume with the trees of all threads, and the files and the directory that they share.
///
/// # Panics
/// If it cannot be made.
pub fn base(kind: &Kind) -> MemDevice {
    let device = Arc::new(kind.base(&roots(), MIB));
    let volume = crate::kind::open(&device).expect("the volume opens");
    volume.create_dir(COMMON, 0o755).expect("mkdir");
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
    /// Time after the operation; the largest number before.
    over: u64,
    /// Time before, and events after, the call that makes it durable; the largest numbers before.
    persisted: (u64, usize),
}

/// The history of a thread.
#[derive(Debug)]
struct Thread {
    root: String,
    plan: Plan,
    oracle: Oracle,
    /// Chooses the bytes that it writes.
    writer: u8,
    ran: Vec<Ran>,
}

/// The trees that the threads of a history begin with.
#[derive(Debug)]
pub struct Start {
    trees: Vec<Tree>,
    generation: u64,
}

impl Start {
    /// Returns the trees of a volume as [`base`] makes it, of a random number of threads.
    pub fn new(rng: &mut Rng) -> Self {
        let count = 2 + u8::try_from(rng.below(u64::from(MAX_THREADS) - 1)).expect("few threads");
        Self { trees: (0..count).map(initial_with_common).collect(), generation: 0 }
    }

    /// Returns the trees of the first `count` threads in the tree of a volume. `generation` is the
    /// number of histories before.
    pub fn found(tree: &Tree, count: usize, generation: u64) -> Self {
        Self { trees: roots().iter().take(count).map(|root| below(tree, root)).collect(), generation }
    }

    /// Returns the number that chooses the bytes of a thread. Two generations in a row use
    /// different bytes.
    fn writer(&self, thread: u8) -> u8 {
        let count = self.trees.len() as u64;
        let writer = (u64::from(thread) + self.generation * count) % u64::from(MAX_THREADS);
        u8::try_from(writer).expect("few threads")
    }
}

/// The threads of a history under way.
#[derive(Debug)]
pub struct Threads {
    threads: Vec<Thread>,
    clock: Arc<Clock>,
    shared: Shared,
}

/// The work of a thread.
pub type Work<'a> = Box<dyn FnOnce() -> Result<(), String> + Send + 'a>;

impl Threads {
    /// Returns threads with random steps. `recorder` records the writes of their volume, which
    /// commits by a timer if `is_timed`.
    pub fn plan(kind: &Kind, start: &Start, recorder: &Arc<Recorder>, is_timed: bool, rng: &mut Rng) -> Self {
        let thread = |(number, tree): (u8, &Tree)| {
            let len = usize::try_from(1 + rng.below(STEPS)).expect("few steps");
            let mut steps = random_from(tree.clone(), rng, len, |op| kind.supports(op));
            if is_timed {
                add_timed(&mut steps, rng);
            }
            let changes = steps
                .iter()
                .map(|_| (0..rng.below(4)).map(|_| Change::random(rng, number, kind.has_extents())).collect())
                .collect();
            let writer = start.writer(number);
            let oracle = oracle(tree.clone(), writer, &steps);
            let plan = Plan { steps, changes };
            Thread { root: format!("/t{number}"), plan, oracle, writer, ran: Vec::new() }
        };
        let threads = (0..).zip(&start.trees).map(thread).collect();
        let clock = Arc::new(Clock::default());
        let shared = Shared::new(Arc::clone(&clock), Arc::clone(recorder), start.generation);
        Self { threads, clock, shared }
    }

    /// Returns the work of each thread on `volume`. Each calls `pause` before each change and each
    /// step.
    pub fn work<'a>(
        &'a mut self,
        volume: &'a Volume,
        recorder: &'a Recorder,
        pause: &'a (dyn Fn() + Sync),
    ) -> Vec<Work<'a>> {
        let (clock, shared) = (&self.clock, &self.shared);
        let work = |(number, thread): (u8, &'a mut Thread)| -> Work<'a> {
            let run = Run { volume, recorder, clock, shared, pause };
            Box::new(move || run.thread(number, thread))
        };
        (0..).zip(&mut self.threads).map(work).collect()
    }

    /// Closes the volume. Returns the number of events afterwards.
    ///
    /// # Errors
    /// The error of the close.
    pub fn close(&self, volume: Volume, recorder: &Recorder) -> parext4::Result<usize> {
        let began = self.clock.tick();
        volume.close()?;
        self.shared.volume_synced(began);
        Ok(recorder.events())
    }

    /// Returns the history. The threads began after `first` events; if the volume was closed, it
    /// was after `closed` events.
    pub fn into_history(self, recording: Recording, first: usize, closed: Option<usize>) -> History {
        History { recording, threads: self.threads, shared: self.shared, first, closed }
    }
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
        let start = Start::new(&mut rng);
        let recorder = if rng.chance(50) { Recorder::new(base) } else { Recorder::with_threads(base) };
        let mut options = options();
        let is_timed = rng.chance(30);
        if is_timed {
            options = options.commit_interval(INTERVAL).write_back_interval(INTERVAL);
        }
        let device = Arc::clone(&recorder) as Arc<dyn Device>;
        let volume = Volume::open_device(device, &options).map_err(|e| format!("open: {e}"))?;
        if rng.chance(50) {
            // The checkpoint begins when the log is half full.
            (0..rng.below(400)).try_for_each(|_| commit(&volume)).map_err(|e| format!("commit: {e}"))?;
        }
        let first = recorder.events();
        let mut threads = Threads::plan(kind, &start, &recorder, is_timed, &mut rng);
        thread::scope(|scope| {
            let work = threads.work(&volume, &recorder, &|| {});
            let running: Vec<_> = work.into_iter().map(|work| scope.spawn(work)).collect();
            let results = running.into_iter().map(|thread| thread.join().expect("no thread panics"));
            results.collect::<Result<Vec<_>, _>>()
        })?;
        let mut closed = None;
        if rng.chance(50) {
            closed = Some(threads.close(volume, &recorder).map_err(|e| format!("close: {e}"))?);
        } else {
            // What dropping the volume writes is recorded, too.
            drop(volume);
        }
        Ok(threads.into_history(Recording::new(base.fork(), &recorder), first, closed))
    }

    /// Returns what is certain of thread `number`'s tree after a crash before event `latest`.
    fn durable(&self, number: usize, latest: usize) -> Durable {
        let thread = &self.threads[number];
        let mut durable = Durable::default();
        if self.closed.is_some_and(|events| events <= latest) {
            durable = thread.oracle.all(thread.ran.partition_point(|ran| ran.over < u64::MAX));
        }
        for (other, ran, (_, persist)) in self.persisted_by(latest) {
            let before = thread.ran.partition_point(|own| own.over < ran.persisted.0);
            match persist {
                Persist::Volume => durable.merge(&thread.oracle.all(before)),
                Persist::Commit | Persist::Timed | Persist::Empty(_) => {
                    durable.names = durable.names.max(before);
                }
                _ if other == number => {
                    // Steps of one thread follow each other, so the step before the call is the
                    // last one.
                    durable.merge(&thread.oracle.persisted(before - 1, persist));
                }
                _ => {}
            }
        }
        durable
    }

    /// Returns the steps whose persistence returned before event `latest`, with the number of their
    /// thread.
    fn persisted_by(&self, latest: usize) -> impl Iterator<Item = (usize, Ran, Step)> {
        self.threads.iter().enumerate().flat_map(move |(number, thread)| {
            let steps = thread.ran.iter().zip(&thread.plan.steps);
            steps
                .filter(move |(ran, _)| ran.persisted.1 <= latest)
                .map(move |(ran, step)| (number, *ran, *step))
        })
    }

    /// Checks that operations on names are found in their order. `found` has the first and the last
    /// point that each thread's names may be of.
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

/// What a thread works with.
struct Run<'a> {
    volume: &'a Volume,
    recorder: &'a Recorder,
    clock: &'a Clock,
    shared: &'a Shared,
    pause: &'a (dyn Fn() + Sync),
}

impl Run<'_> {
    fn thread(&self, number: u8, thread: &mut Thread) -> Result<(), String> {
        let Thread { root, plan, writer, ran, .. } = thread;
        let mut runner = Runner::with_paths(self.volume, |path| path_on_volume(root, path));
        let mut handles = self.shared.handles(self.volume, number).map_err(|e| format!("open: {e}"))?;
        for (nth, ((op, persist), changes)) in (0..).zip(plan.steps.iter().zip(&plan.changes)) {
            for change in changes {
                (self.pause)();
                handles.run(*change).map_err(|e| format!("{root}: {change:?}: {e}"))?;
            }
            (self.pause)();
            let begun = (self.recorder.events(), self.clock.tick());
            let step = ran.len();
            ran.push(Ran { begun, over: u64::MAX, persisted: (u64::MAX, usize::MAX) });
            runner.run(op, content(*writer, nth)).map_err(|e| format!("{root}: {op:?}: {e}"))?;
            ran[step].over = self.clock.tick();
            let began = self.clock.tick();
            runner.persist(op, *persist).map_err(|e| format!("{root}: {persist:?} after {op:?}: {e}"))?;
            if *persist == Persist::Volume {
                self.shared.volume_synced(began);
            }
            ran[step].persisted = (began, self.recorder.events());
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
            let points = thread.oracle.check(&below(tree, &thread.root), &durable, begun);
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

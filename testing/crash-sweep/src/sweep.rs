//! The sweep: cases of several kinds of work, in turn, on all processors.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use testkit::rng::Rng;

use crate::case::{Case, Work};
use crate::failure::{Failure, Look, check, without_panic};
use crate::generate::count;
use crate::kind::KINDS;
use crate::record::Density;
use crate::verify::Peers;

/// How much is run.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Seed of all choices.
    pub seed: u64,
    /// The number of states; `None` for the full sweep.
    pub states: Option<u64>,
    /// The time after which no case begins.
    pub time: Option<Duration>,
    /// The folder that failing states are kept in.
    pub keep: Option<PathBuf>,
}

/// A kind of work, and how much of it there is.
struct Phase {
    work: Work,
    /// Its cases in the full sweep.
    cases: u64,
    density: Density,
    begun: AtomicU64,
    states: AtomicU64,
}

/// States of the full sweep, about.
const FULL: u64 = 800_000;
/// e2fsck recovers one of this number of states, the kernel too, and a recovery is cut off.
const E2FSCK: u64 = 200;
const KERNEL: u64 = 500;
const INTERRUPT: u64 = 80;
/// A peer that has recovered none of this number of states is not installed.
const ABSENT: u64 = 10;
/// The sweep ends after this number of failures.
const MAX_FAILURES: usize = 5;
/// A case that takes longer hangs.
const HANGS: Duration = Duration::from_mins(5);
const PROGRESS: Duration = Duration::from_secs(15);

/// The states that a peer was to recover.
struct PeerCount {
    peer: &'static str,
    one_in: u64,
    wanted: AtomicU64,
    /// The states that it has recovered, with the same tree as this project.
    compared: AtomicU64,
}

impl PeerCount {
    fn new(peer: &'static str, one_in: u64) -> Self {
        Self { peer, one_in, wanted: AtomicU64::new(0), compared: AtomicU64::new(0) }
    }

    /// Returns true for some of the states.
    fn choose(&self, rng: &mut Rng) -> bool {
        rng.below(self.one_in) == 0
            && !(self.wanted.load(Relaxed) >= ABSENT && self.compared.load(Relaxed) == 0)
    }

    fn count(&self, wanted: bool, compared: bool) {
        self.wanted.fetch_add(u64::from(wanted), Relaxed);
        self.compared.fetch_add(u64::from(compared), Relaxed);
    }

    /// Returns a line to be shown if the peer has recovered nothing.
    fn skipped(&self) -> Option<String> {
        let is_skipped = self.wanted.load(Relaxed) > 0 && self.compared.load(Relaxed) == 0;
        is_skipped.then(|| format!("SKIPPED: {} has recovered no state", self.peer))
    }
}

impl fmt::Display for PeerCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (compared, wanted) = (self.compared.load(Relaxed), self.wanted.load(Relaxed));
        write!(f, "{compared} of {wanted} by {}", self.peer)
    }
}

/// A sweep under way.
pub struct Sweep {
    extent: Extent,
    phases: Vec<Phase>,
    recoveries: AtomicU64,
    e2fsck: PeerCount,
    kernel: PeerCount,
    failures: Mutex<Vec<Failure>>,
    /// By thread: the case under way.
    current: Vec<Mutex<Option<(Case, Instant)>>>,
    start: Instant,
}

impl Sweep {
    /// Returns a sweep of this extent.
    pub fn new(extent: Extent) -> Self {
        let phase = |work, cases, density| Phase {
            work,
            cases,
            density,
            begun: AtomicU64::new(0),
            states: AtomicU64::new(0),
        };
        let kinds = KINDS.len() as u64;
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            extent,
            phases: vec![
                phase(Work::One, count(1) * kinds, Density::Sample(30)),
                phase(Work::Two, count(2), Density::Sample(5)),
                phase(Work::Three, 20_000, Density::Sample(6)),
                phase(Work::Long, 1_000, Density::Sample(30)),
                phase(Work::Threads, 2_500, Density::Sample(48)),
                phase(Work::Make, kinds * kinds, Density::Sample(40)),
                phase(Work::Orphans, 300, Density::Sample(30)),
            ],
            recoveries: AtomicU64::new(0),
            e2fsck: PeerCount::new("e2fsck", E2FSCK),
            kernel: PeerCount::new("the kernel", KERNEL),
            failures: Mutex::default(),
            current: (0..threads).map(|_| Mutex::default()).collect(),
            start: Instant::now(),
        }
    }

    /// Runs the sweep, and prints what it finds. Returns true if nothing failed.
    pub fn run(&self) -> bool {
        thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.current.len()).map(|worker| scope.spawn(move || self.work(worker))).collect();
            let mut shown = Instant::now();
            while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
                thread::sleep(Duration::from_millis(50));
                self.end_if_hung();
                if shown.elapsed() > PROGRESS {
                    shown = Instant::now();
                    println!("{}", self.line());
                }
            }
        });
        println!("{}", self.line());
        [&self.e2fsck, &self.kernel]
            .iter()
            .filter_map(|peer| peer.skipped())
            .for_each(|line| println!("{line}"));
        let failures = self.failures.lock();
        failures.iter().for_each(|failure| self.show(failure));
        failures.is_empty()
    }

    fn show(&self, failure: &Failure) {
        println!("\nFAILED {}", failure.text(self.extent.seed));
        if let Some(dir) = &self.extent.keep
            && let Err(error) = failure.keep(dir, self.extent.seed)
        {
            println!("the state is not kept: {error}");
        }
    }

    fn end_if_hung(&self) {
        for current in &self.current {
            if let Some((case, begun)) = &*current.lock()
                && begun.elapsed() > HANGS
            {
                println!("FAILED {case}: it has not ended after {HANGS:?}");
                std::process::abort();
            }
        }
    }

    fn line(&self) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let mut total = self.recoveries.load(Relaxed);
        let mut line = format!("{seconds:6.0} s:");
        for phase in &self.phases {
            let (begun, states) = (phase.begun.load(Relaxed), phase.states.load(Relaxed));
            total += states;
            line += &format!(" {:?} {begun} cases, {states} states;", phase.work);
        }
        line += &format!(" {} states of recoveries;", self.recoveries.load(Relaxed));
        line += &format!(" recovered {}, {};", self.e2fsck, self.kernel);
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = total as f64 / seconds;
        line + &format!(" {total} in all, {rate:.0} per second")
    }

    fn work(&self, worker: usize) {
        while self.failures.lock().len() < MAX_FAILURES
            && self.extent.time.is_none_or(|time| self.start.elapsed() < time)
            && let Some((phase, case)) = self.next()
        {
            *self.current[worker].lock() = Some((case, Instant::now()));
            if let Err(failure) = self.run_case(phase, case) {
                self.failures.lock().push(*failure);
            }
            *self.current[worker].lock() = None;
        }
    }

    /// Returns the next case: of the phase of which the smallest part is done.
    fn next(&self) -> Option<(&Phase, Case)> {
        let wanted = |phase: &Phase| match self.extent.states {
            Some(states) => (phase.cases * states / FULL).clamp(1, phase.cases),
            None => phase.cases,
        };
        #[expect(clippy::cast_precision_loss, reason = "only compared")]
        let part = |phase: &Phase| phase.begun.load(Relaxed) as f64 / wanted(phase) as f64;
        let phase = self.phases.iter().min_by(|a, b| part(a).total_cmp(&part(b)))?;
        let nth = phase.begun.fetch_add(1, Relaxed);
        if nth >= wanted(phase) {
            phase.begun.fetch_sub(1, Relaxed);
            return None;
        }
        Some((phase, self.case(phase, nth)))
    }

    /// Returns case `nth` of a phase. Sequences that are all tried come in an order that the seed
    /// chooses.
    fn case(&self, phase: &Phase, nth: u64) -> Case {
        let seed = self.extent.seed;
        let kinds = KINDS.len() as u64;
        let kind = |number: u64| &KINDS[usize::try_from(number % kinds).expect("few kinds")];
        // A prime, so that every number below `cases` is reached.
        let shuffled = (nth * 1_000_003 + seed) % phase.cases;
        let (kind, number) = match phase.work {
            Work::One => (kind(shuffled / count(1)), shuffled % count(1)),
            Work::Two => (&KINDS[0], shuffled),
            Work::Make => (kind(shuffled), shuffled / kinds),
            Work::Three | Work::Long | Work::Threads | Work::Orphans => (kind(nth), seed * 1_000_003 + nth),
        };
        Case { kind, work: phase.work, number }
    }

    /// Repeats one case, and then checks more states of it. Returns true if nothing failed.
    pub fn repeat(&self, case: Case) -> bool {
        let phase = self.phases.iter().find(|phase| phase.work == case.work).expect("a phase of each work");
        let more = Phase {
            work: case.work,
            cases: 1,
            density: Density::All,
            begun: AtomicU64::new(0),
            states: AtomicU64::new(0),
        };
        let result = self.run_case(phase, case).and_then(|()| self.run_case(&more, case));
        println!("{case}: {} states", phase.states.load(Relaxed) + more.states.load(Relaxed));
        match result {
            Ok(()) => true,
            Err(failure) => {
                self.show(&failure);
                false
            }
        }
    }

    fn run_case(&self, phase: &Phase, case: Case) -> Result<(), Box<Failure>> {
        let experiment = match without_panic(|| case.run()) {
            Ok(Some(experiment)) => experiment,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Box::new(Failure::of_run(case, error))),
        };
        let experiment = &*experiment;
        let mut rng = Rng::new(self.extent.seed, case.number);
        let cuts = experiment.recording().cuts(experiment.first(), phase.density, &mut rng);
        let mut look = Look::default();
        let result = experiment.recording().each(&cuts, |cut, image| {
            look = Look {
                peers: Peers { e2fsck: self.e2fsck.choose(&mut rng), kernel: self.kernel.choose(&mut rng) },
                interrupt: (rng.below(INTERRUPT) == 0).then(|| rng.next()),
            };
            let checked = check(experiment, cut, image, look)?;
            phase.states.fetch_add(1, Relaxed);
            self.recoveries.fetch_add(checked.recoveries, Relaxed);
            self.e2fsck.count(look.peers.e2fsck, checked.peers.e2fsck);
            self.kernel.count(look.peers.kernel, checked.peers.kernel);
            Ok(())
        });
        result.map_err(|(cut, error)| Box::new(Failure::of_state(case, experiment, cut, look, error)))
    }
}

//! One run: generations of threads on one volume, each of which begins with the state that the
//! power cut of the one before has left.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crash_sweep::history;
use crash_sweep::kind::{KINDS, Kind, open};
use parext4::MemDevice;
use testkit::ops::{Tree, read_tree};
use testkit::rng::Rng;

use crate::execution::execute;
use crate::generation::Simulation;
use crate::profile::Profile;
use crate::states::Left;
use crate::trace;

/// The most generations of a run.
const GENERATIONS: u64 = 6;

/// The numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// States that were recovered and checked.
    pub states: u64,
    /// Generations that began.
    pub generations: u64,
    /// The time that has passed for the threads.
    pub simulated: Duration,
    /// The hash of all steps and requests.
    pub trace: u64,
}

/// Simulates the run of a seed.
///
/// # Panics
/// If a promise is broken, a thread panics, or the run does not end.
pub fn run(seed: u64) -> Outcome {
    let kind = &KINDS[usize::try_from(Rng::new(seed, 5).below(KINDS.len() as u64)).expect("few kinds")];
    let base = base(kind);
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let counted = Arc::clone(&outcome);
    let simulated = execute(seed, move || {
        let counts = simulate(seed, kind, base);
        *counted.lock().expect("no thread panics with it") = counts;
    });
    let counts = *outcome.lock().expect("the run has ended");
    Outcome { simulated, trace: trace::hash(), ..counts }
}

/// Returns the volume of a kind before any run. Making it is an execution of its own.
fn base(kind: &'static Kind) -> &'static MemDevice {
    static BASES: [OnceLock<MemDevice>; KINDS.len()] = [const { OnceLock::new() }; KINDS.len()];
    let made = &BASES[kind.index()];
    if made.get().is_none() {
        execute(u64::MAX - kind.index() as u64, move || {
            made.get_or_init(|| history::base(kind));
        });
    }
    made.get().expect("it was made")
}

fn tree_of(base: &MemDevice) -> Tree {
    let volume = open(&Arc::new(base.fork())).expect("the volume opens");
    read_tree(&volume, "").expect("the tree")
}

fn simulate(seed: u64, kind: &'static Kind, base: &MemDevice) -> Outcome {
    let mut rng = Rng::new(seed, 2);
    let profile = Profile::random(&mut rng);
    let threads = 2 + usize::try_from(rng.below(5)).expect("few threads");
    let generations = 1 + rng.below(GENERATIONS);
    let mut simulation = Simulation::new(kind, profile, threads, rng);
    let mut left = Some(Left { image: base.fork(), tree: tree_of(base) });
    let mut begun = 0;
    while let Some(volume) = left.take().filter(|_| begun < generations) {
        begun += 1;
        left = simulation.generation(volume);
    }
    Outcome { states: simulation.states(), generations: begun, ..Outcome::default() }
}

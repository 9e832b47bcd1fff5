//! Runs of many seeds, one after the other, until a number, a time or a failure.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::run::{Outcome, run};

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The seed of the first run.
    pub seed: u64,
    /// The difference between the seeds of two runs.
    pub stride: u64,
    /// The number of runs.
    pub runs: Option<u64>,
    /// The time after which no run begins.
    pub time: Option<Duration>,
}

/// The sums of runs.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    runs: u64,
    states: u64,
    generations: u64,
    simulated: Duration,
}

const PROGRESS: Duration = Duration::from_secs(60);

thread_local! {
    /// The seed of the run under way.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs the seeds of an extent, and prints the sums: a line of numbers for the caller at the end.
///
/// # Panics
/// If a run fails. The hook of panics prints the command that repeats it.
pub fn run_all(extent: Extent) {
    print_seed_of_panics();
    let start = Instant::now();
    let (mut sums, mut shown) = (Sums::default(), Instant::now());
    let mut seed = extent.seed;
    while extent.runs.is_none_or(|runs| sums.runs < runs)
        && extent.time.is_none_or(|time| start.elapsed() < time)
    {
        SEED.set(Some(seed));
        sums.add(run(seed));
        SEED.set(None);
        seed = seed.wrapping_add(extent.stride);
        if shown.elapsed() > PROGRESS {
            shown = Instant::now();
            println!("{:?}", sums);
        }
    }
    let Sums { runs, states, generations, simulated } = sums;
    println!("sums {runs} {states} {generations} {}", simulated.as_secs());
}

impl Sums {
    fn add(&mut self, outcome: Outcome) {
        self.runs += 1;
        self.states += outcome.states;
        self.generations += outcome.generations;
        self.simulated += outcome.simulated;
    }
}

/// Has a panic print the command that repeats the run.
fn print_seed_of_panics() {
    let original = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        original(info);
        if let Some(seed) = SEED.take() {
            println!("FAILED, repeat it: cargo xtask simulate --seed {seed} --runs 1");
        }
    }));
}

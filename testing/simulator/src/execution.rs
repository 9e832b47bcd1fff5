//! Runs code under the scheduler of the simulation, with its clock.
//!
//! The scheduler chooses each step at random, by the seed. It runs the thread of the clock when no
//! other thread can run, so waits cost nothing, and rarely at other times, as if all threads were
//! slow.

use std::cell::Cell;
use std::time::Duration;

use parext4::models::simulated_time as time;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner, current, thread};
use testkit::rng::Rng;

use crate::trace;

/// Bytes of a thread's stack.
const STACK: usize = 256 << 10;
/// The time at which each simulation begins, since 1970.
const BEGIN: Duration = Duration::from_secs(1_767_225_600);
/// A simulation that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// A simulation with more steps of its threads hangs.
const MAX_STEPS: usize = 100_000_000;
/// The clock may advance in one of this number of steps although threads can run.
const CLOCK_ONE_IN: u64 = 2000;

// One thread of the system runs all threads of a simulation.
thread_local! {
    /// The thread that advances the time.
    static CLOCK: Cell<Option<TaskId>> = const { Cell::new(None) };
}

/// The choices of one execution.
#[derive(Debug)]
struct SeededScheduler {
    seed: u64,
    has_run: bool,
    rng: Rng,
    /// The thread that runs may be exchanged in one of this number of steps.
    switch_one_in: u64,
}

impl SeededScheduler {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 1);
        let switch_one_in = 1 << (2 * rng.below(5));
        Self { seed, has_run: false, rng, switch_one_in }
    }

    fn choose(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> TaskId {
        let clock = CLOCK.get();
        // Parked threads are in the list as well.
        let able = || runnable.iter().filter(|task| task.runnable()).map(|task| task.id());
        let threads = able().filter(|task| Some(*task) != clock).count() as u64;
        let may_advance = threads == 0 || self.rng.below(CLOCK_ONE_IN) == 0;
        if let Some(clock) = clock.filter(|_| may_advance)
            && able().any(|task| task == clock)
        {
            return clock;
        }
        if let Some(current) = current.filter(|task| !is_yielding && Some(*task) != clock)
            && self.rng.below(self.switch_one_in) != 0
            && able().any(|task| task == current)
        {
            return current;
        }
        let chosen = usize::try_from(self.rng.below(threads)).expect("few threads");
        able().filter(|task| Some(*task) != clock).nth(chosen).expect("a thread that can run")
    }
}

impl Scheduler for SeededScheduler {
    fn new_execution(&mut self) -> Option<Schedule> {
        CLOCK.set(None);
        (!std::mem::replace(&mut self.has_run, true)).then(|| Schedule::new(self.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let chosen =
            if let [only] = runnable { only.id() } else { self.choose(runnable, current, is_yielding) };
        trace::add(usize::from(chosen) as u64);
        Some(chosen)
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.next()
    }
}

/// Runs `work` as a thread of a simulation. Returns the time that has passed for it.
///
/// # Panics
/// If a thread panics, all threads wait for each other, or the simulation takes too long.
pub fn execute(seed: u64, work: impl FnOnce() + Send + 'static) -> Duration {
    let work = std::sync::Mutex::new(Some(work));
    let passed = std::sync::Arc::new(std::sync::Mutex::new(Duration::ZERO));
    let mut config = Config::default();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
    config.silence_warnings = true;
    trace::begin();
    let result = std::sync::Arc::clone(&passed);
    Runner::new(SeededScheduler::new(seed), config).run(move || {
        time::begin(BEGIN);
        let clock = thread::spawn(advance);
        let work = work.lock().expect("no execution panics with it").take().expect("one execution");
        work();
        *result.lock().expect("no execution panics with it") = time::now().unwrap_or(BEGIN) - BEGIN;
        time::end();
        clock.join().expect("the clock ends");
    });
    *passed.lock().expect("the execution has ended")
}

/// The thread of the clock.
fn advance() {
    CLOCK.set(Some(current::me()));
    while time::advance() {
        if time::now().unwrap_or(BEGIN) - BEGIN > LONGEST {
            eprintln!("threads wait for each other, or for the device, after {LONGEST:?} of simulated time");
            // All threads are blocked now, which the model checker reports as a deadlock, with the
            // threads.
            loop {
                thread::park();
            }
        }
    }
}

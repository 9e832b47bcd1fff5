//! The simulator: the engine on a simulated device with time skipped, one seed after the other.
//! docs/testing.md describes it.

use std::iter::Sum;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::command::{Cmd, cmd};
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace::{cargo, target};

/// The extent of the simulation.
#[derive(clap::Args)]
pub struct Args {
    /// End after this number of minutes; after ten, unless a number of runs is given
    #[arg(long)]
    minutes: Option<f64>,
    /// Seed of the first run; each further run has the next number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// End after this number of runs
    #[arg(long)]
    runs: Option<u64>,
}

/// Time of the part of `cargo xtask test --full`.
const SHORT: Duration = Duration::from_secs(25);
const DEFAULT_MINUTES: f64 = 10.0;

/// Runs the part of `cargo xtask test --full`: other seeds each time, as many as there is time for.
pub fn run(_: Scope, report: &mut Report) -> Result<()> {
    simulate(fastrand::u64(..1 << 32), None, Some(SHORT), report)
}

/// Runs seeds for a time or up to a number.
pub fn run_some(args: &Args, report: &mut Report) -> Result<()> {
    let default = args.runs.is_none().then_some(DEFAULT_MINUTES);
    let time = args.minutes.or(default).map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    simulate(args.seed, args.runs, time, report)
}

/// Packages with code for the model checker. Together they always have the same features, so none
/// is built twice.
const MODELS: &str = "-p parext4-sync -p rangelock -p parext4 -p parext4-mount -p parext4-nbd -p simulator";

/// Returns the tests under the model checker that `words` select.
pub fn models(words: &str) -> Cmd {
    models_of(MODELS, words)
}

/// Returns the tests of the range lock under the model checker. They are built in a sixth of the
/// time of all models.
pub fn models_of_range_lock(words: &str) -> Cmd {
    models_of("-p rangelock", words)
}

fn models_of(packages: &str, words: &str) -> Cmd {
    // Its own folder: other flags would rebuild everything each time.
    cargo(&format!("test {packages} --release {words}"))
        .env("RUSTFLAGS", "--cfg shuttle")
        // Shorter builds.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_TARGET_DIR", target().join("shuttle"))
}

fn simulate(seed: u64, runs: Option<u64>, time: Option<Duration>, report: &mut Report) -> Result<()> {
    // Builds the simulator, too, as for each test program of its package.
    models("--no-run --quiet --test shuttle_simulator").run()?;
    report.case(&format!("simulate --seed {seed}"), || {
        let processors = thread::available_parallelism()?.get() as u64;
        let processes = processors.min(runs.unwrap_or(processors)).max(1);
        let start = Instant::now();
        let results: Vec<Result<Sums>> = thread::scope(|scope| {
            let process = |number: u64| {
                let runs = runs.map(|runs| (runs + processes - 1 - number) / processes);
                let simulator = cmd(target().join("shuttle/release/simulator"))
                    .args(&format!("--seed {} --stride {processes}", seed + number))
                    .option("--runs", runs.map(|runs| runs.to_string()))
                    .option("--seconds", time.map(|time| time.as_secs_f64().to_string()));
                scope.spawn(move || run_process(simulator))
            };
            let started: Vec<_> = (0..processes).map(process).collect();
            started.into_iter().map(|process| process.join().expect("it does not panic")).collect()
        });
        let sums = results.into_iter().sum::<Result<Sums>>()?;
        println!("  {}", sums.line(start.elapsed()));
        Ok(())
    });
    Ok(())
}

/// Runs one process of the simulator, and returns its sums.
fn run_process(simulator: Cmd) -> Result<Sums> {
    let mut sums = None;
    let status = simulator.each_line(|line| match line.strip_prefix("sums ") {
        Some(numbers) => sums = Sums::parse(numbers),
        None => println!("  {line}"),
    })?;
    ensure!(status.success(), "a run failed; the lines above repeat it");
    sums.context("the simulator ended without sums")
}

/// The sums of all runs.
#[derive(Default)]
struct Sums {
    runs: u64,
    states: u64,
    generations: u64,
    /// Seconds that have passed for the threads.
    simulated: u64,
}

impl Sums {
    /// Parses the last line of the simulator.
    fn parse(numbers: &str) -> Option<Self> {
        let numbers: Vec<u64> = numbers.split(' ').map_while(|number| number.parse().ok()).collect();
        let [runs, states, generations, simulated] = numbers[..] else { return None };
        Some(Self { runs, states, generations, simulated })
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn line(&self, time: Duration) -> String {
        let Self { runs, states, generations, simulated } = self;
        let (hours, seconds) = (*simulated as f64 / 3600.0, time.as_secs_f64());
        let rate = |number: f64| number / seconds;
        format!(
            "{runs} runs with {generations} generations, {states} states and {hours:.0} simulated hours in {seconds:.0} s; \
             per second {:.1} runs, {:.0} states and {:.2} simulated hours",
            rate(*runs as f64),
            rate(*states as f64),
            rate(hours),
        )
    }
}

impl Sum for Sums {
    fn sum<I: Iterator<Item = Self>>(sums: I) -> Self {
        sums.fold(Self::default(), |sum, more| Self {
            runs: sum.runs + more.runs,
            states: sum.states + more.states,
            generations: sum.generations + more.generations,
            simulated: sum.simulated + more.simulated,
        })
    }
}

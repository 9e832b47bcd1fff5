//! Simulates runs of the engine. Only with `--cfg shuttle`.

#![forbid(unsafe_code)]

#[cfg(shuttle)]
use std::time::Duration;

#[cfg(shuttle)]
use clap::Parser;
#[cfg(shuttle)]
use simulator::campaign::{Extent, run_all};

/// The engine on a simulated device, with time skipped
#[cfg(shuttle)]
#[derive(Parser)]
struct Args {
    /// The seed of the first run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The difference between the seeds of two runs
    #[arg(long, default_value_t = 1)]
    stride: u64,
    /// End after this number of runs
    #[arg(long)]
    runs: Option<u64>,
    /// End after this number of seconds
    #[arg(long)]
    seconds: Option<f64>,
}

#[cfg(shuttle)]
fn main() {
    let Args { seed, stride, runs, seconds } = Args::parse();
    run_all(Extent { seed, stride, runs, time: seconds.map(Duration::from_secs_f64) });
}

#[cfg(not(shuttle))]
fn main() {
    eprintln!("the simulator needs the flag `--cfg shuttle`; run `cargo xtask simulate`");
    std::process::exit(2);
}

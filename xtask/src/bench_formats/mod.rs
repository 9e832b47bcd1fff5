//! `parext4` beside e2fsprogs: filling an image, checking an image of 20 GiB, and overwriting files
//! mapped by indirect blocks and by extents.

mod check;
mod overwrite;
mod put;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::command::Cmd;
use crate::quantile::median;
use crate::testbed::TestBed;
use crate::{debian, interrupt};

/// The amount that is measured.
#[derive(clap::Args)]
pub struct Args {
    /// A short run that shows that all works; its figures mean little
    #[arg(long)]
    quick: bool,
    /// Runs of each program, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Only parts whose names begin with NAME: put, check or overwrite
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
}

type Part = fn(&TestBed, &Args) -> Result<()>;

const PARTS: &[(&str, Part)] = &[("put", put::run), ("check", check::run), ("overwrite", overwrite::run)];

/// Measures all parts.
pub fn run(args: &Args) -> Result<()> {
    let missing = debian::install(debian::KERNEL_MOUNTS);
    anyhow::ensure!(missing.is_empty(), "programs are missing: {}", missing.join(" "));
    let bed = TestBed::release()?;
    for (_, part) in PARTS.iter().filter(|(name, _)| name.starts_with(&args.only)) {
        part(&bed, args)?;
    }
    Ok(())
}

/// Returns folders for images and their names. A tmpfs holds an image in memory.
fn places(bed: &TestBed) -> [(&'static str, PathBuf); 2] {
    [("image file", bed.path("")), ("memory", PathBuf::from("/dev/shm"))]
}

/// One of the programs that are compared: its name, and a run, which returns the time that counts.
type Program<'a> = (&'a str, Box<dyn Fn() -> Result<Duration> + 'a>);

/// Runs programs in turn, and prints the median and the extremes of each.
fn compare(what: &str, runs: u32, programs: &[Program<'_>]) -> Result<()> {
    let mut seconds = vec![Vec::new(); programs.len()];
    for round in 0..runs as usize {
        for nth in 0..programs.len() {
            interrupt::check()?;
            // Each program is the first one in its turn.
            let nth = (nth + round) % programs.len();
            seconds[nth].push(programs[nth].1()?.as_secs_f64());
        }
    }
    println!("{what}: medians of {runs} runs in turn, in seconds");
    for ((name, _), seconds) in programs.iter().zip(&seconds) {
        let extreme = |by: fn(f64, f64) -> f64| seconds.iter().copied().reduce(by).unwrap_or(f64::NAN);
        println!(
            "  {name:<28}{:>8.3}  ({:.3} to {:.3})",
            median(seconds),
            extreme(f64::min),
            extreme(f64::max)
        );
    }
    Ok(())
}

/// Returns the time that commands take one after another.
fn timed(commands: Vec<Cmd>) -> Result<Duration> {
    let start = Instant::now();
    for command in commands {
        command.run()?;
    }
    Ok(start.elapsed())
}

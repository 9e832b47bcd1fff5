//! The project's checks: `cargo xtask test` runs them all; the campaigns run alone, and longer,
//! too.

#![forbid(unsafe_code)]

mod asan;
mod bench_check;
mod bench_formats;
mod bench_lock;
mod bench_network;
mod beside;
mod campaign;
mod cargo_test;
mod command;
mod coverage;
mod cpu;
mod debian;
mod deny;
mod embed;
mod image;
mod interrupt;
mod kernel_mount;
mod nbdkit;
mod nightly;
mod parext4_mount;
mod process;
mod quantile;
mod report;
mod scope;
mod slowest;
mod steps;
mod testbed;
mod tidy;
mod tree;
mod tsan;
mod tsan_report;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::campaign::{crash, faults, formats, fuzz, mount, mutants, network, programs, simulate};
use crate::scope::Scope;

#[derive(Parser)]
#[command(about = "The project's checks")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The checks in their quick forms, or all; installs the Debian packages they need where it can
    Test {
        /// All checks, as before each release; it takes half an hour on two processors
        #[arg(long)]
        full: bool,
        /// Only these steps
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// Show the steps and end
        #[arg(long)]
        list: bool,
        /// The process that started this one runs other steps, has installed the packages, and has
        /// built the programs
        #[arg(long, hide = true)]
        beside: bool,
    },
    /// The rules of the project: imports, locks, hazards, prose; reads the sources and builds
    /// nothing
    Tidy,
    /// Images of all kinds that mke2fs makes, alone and combined, changed and read by parext4 and
    /// the kernel in turn
    Formats(formats::Args),
    /// Fuzz targets: damaged images and logs, sequences of operations with crashes, the range lock,
    /// requests of a mount, and what users type
    Fuzz(fuzz::Args),
    /// Volumes that parext4 makes, under fio in the kernel
    Mkfs(Length),
    /// Recovery of journals that the kernel left dirty
    Dirty(Length),
    /// parext4 killed in the middle of a put
    Kill(Length),
    /// Power cuts during short sequences of operations and histories of threads: what recovery
    /// leaves, against an oracle
    Crash(crash::Args),
    /// The engine with all its threads on a simulated device, with time skipped; one seed gives
    /// exactly the same run
    Simulate(simulate::Args),
    /// Workloads over all operations with each request of the device failing, and with little
    /// memory and space
    Faults(faults::Args),
    /// Guards, orderings and error paths of the range lock and of parts of the engine, broken one
    /// at a time: tests must notice
    Mutants(mutants::Args),
    /// Random operations of every kind on one file, buffered and direct, against a model
    Fsx {
        /// Operations in each configuration
        #[arg(long, default_value_t = 1_000_000)]
        ops: u64,
    },
    /// Random operations of every kind on one file of a mount, against a model
    MountFsx {
        /// Operations in each of nine configurations
        #[arg(long, default_value_t = 250_000)]
        ops: u64,
    },
    /// Random operations on names by eight threads on a mount, against the kernel
    MountNames {
        /// Operations by each thread, in each of three configurations
        #[arg(long, default_value_t = 20_000)]
        ops: u64,
    },
    /// The server of a mount killed under load
    MountKill {
        /// How often
        #[arg(long, default_value_t = 30)]
        rounds: u64,
    },
    /// Handles of every kind on the same files by several users, beside the kernel's ext4
    MountMixed {
        /// Seconds that each test goes on
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Only tests whose names contain this
        #[arg(long, value_name = "NAME", default_value = "")]
        only: String,
    },
    /// Real programs on a mount: SQLite, git, tar, and with `--long` rsync, gcc, fio, stress-ng,
    /// qemu-img and PostgreSQL
    MountPrograms {
        #[command(flatten)]
        length: Length,
        /// Only programs whose names begin with NAME
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
    },
    /// Volumes on servers of network block devices, which delay, fail, are killed and come back
    Network(network::Args),
    /// A volume on Ceph RBD and on NBD taken over from an owner that is stopped, and then continued
    SplitBrain(Length),
    /// The stress test under ThreadSanitizer
    Tsan(Length),
    /// The tests of the device queues under AddressSanitizer
    Asan,
    /// The lines of each module that the tests run
    Coverage,
    /// `parext4-bench` beside fio: the same jobs on the same kernel ext4, whose figures must agree
    BenchCheck(bench_check::Args),
    /// Measure the cost of the range lock: `parext4-bench` beside a build whose lock locks nothing
    BenchLock(bench_lock::Args),
    /// `put` beside mke2fs and debugfs, `check` beside e2fsck, and overwrites of files without
    /// extents beside files with them
    BenchFormats(bench_formats::Args),
    /// `parext4-bench` on network block devices beside fio's engines for them, on the same image
    BenchNetwork(bench_network::Args),
}

#[derive(Args)]
struct Length {
    /// The whole campaign, not the part that each test run makes
    #[arg(long)]
    long: bool,
}

impl Length {
    fn scope(&self) -> Scope {
        if self.long { Scope::Long } else { Scope::Full }
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<bool> {
    interrupt::install()?;
    let (name, length) = match command {
        Command::Test { list: true, .. } => {
            for step in steps::all() {
                let only = if step.is_full_only { " (only with --full)" } else { "" };
                println!("{:14} {}{only}", step.name, step.about);
            }
            return Ok(true);
        }
        Command::Test { only, full, beside, .. } => {
            let scope = if full { Scope::Full } else { Scope::Quick };
            return steps::test(steps::Choice { only: &only, scope, is_beside: beside });
        }
        Command::Tidy => ("tidy", Length { long: false }),
        Command::Formats(args) => {
            return Ok(steps::alone("formats", |report| formats::run_some(&args, report)));
        }
        Command::Faults(args) => {
            return Ok(steps::alone("faults", |report| faults::run_some(&args, report)));
        }
        Command::Fuzz(args) => {
            return Ok(steps::alone("fuzz", |report| fuzz::run_some(&args, report)));
        }
        Command::Mkfs(length) => ("mkfs", length),
        Command::Dirty(length) => ("dirty", length),
        Command::Kill(length) => ("kill", length),
        Command::Crash(args) => {
            return Ok(steps::alone("crash", |report| crash::run_some(&args, report)));
        }
        Command::Mutants(args) => {
            return Ok(steps::alone("mutants", |report| mutants::run_some(&args, report)));
        }
        Command::Simulate(args) => {
            return Ok(steps::alone("simulate", |report| simulate::run_some(&args, report)));
        }
        Command::Fsx { ops } => return Ok(steps::alone("fsx", |report| steps::fsx(ops, report))),
        Command::MountFsx { ops } => {
            return Ok(steps::alone("mount-fsx", |report| mount::fsx(ops, report)));
        }
        Command::MountNames { ops } => {
            return Ok(steps::alone("mount-names", |report| mount::names(ops, report)));
        }
        Command::MountKill { rounds } => {
            return Ok(steps::alone("mount-kill", |report| mount::kill(rounds, report)));
        }
        Command::MountMixed { seconds, only } => {
            return Ok(steps::alone("mount-mixed", |report| mount::mixed(seconds, &only, report)));
        }
        Command::MountPrograms { length, only } => {
            let campaign = |report: &mut _| programs::run_some(length.scope(), &only, report);
            return Ok(steps::alone("mount-programs", campaign));
        }
        Command::Network(args) => {
            return Ok(steps::alone("network", |report| network::run_some(&args, report)));
        }
        Command::SplitBrain(length) => ("split-brain", length),
        Command::Tsan(length) => ("tsan", length),
        Command::Asan => ("asan", Length { long: false }),
        Command::Coverage => return Ok(steps::alone("coverage", coverage::tests)),
        Command::BenchCheck(args) => return bench_check::run(&args),
        Command::BenchLock(args) => return bench_lock::run(&args).map(|()| true),
        Command::BenchFormats(args) => return bench_formats::run(&args).map(|()| true),
        Command::BenchNetwork(args) => return bench_network::run(&args).map(|()| true),
    };
    Ok(steps::one(name, length.scope()))
}

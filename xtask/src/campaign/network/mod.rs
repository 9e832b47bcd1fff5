//! Volumes on servers of network block devices, which delay, fail, are killed and come back.

mod block;
mod gone;
mod kills;
mod load;
mod programs;
mod refused;
mod restarts;
pub(super) mod server;
mod trees;

use anyhow::{Error, Result, anyhow};
use clap::ValueEnum;
use server::{Server, kinds};

use crate::debian;
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::TestBed;

/// What to run.
#[derive(clap::Args)]
pub struct Args {
    /// The whole campaign, not the part that each test run makes
    #[arg(long)]
    long: bool,
    /// Only servers whose names begin with NAME
    #[arg(long, value_name = "NAME", default_value = "")]
    server: String,
    /// Only this part
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// The seed of all random choices; another one for each run by default
    #[arg(long)]
    seed: Option<u64>,
}

/// A part of the campaign.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Trees copied in and out, against the kernel
    Trees,
    /// Programs on a mount: random operations, fio, stress-ng, PostgreSQL
    Programs,
    /// parext4 killed under load
    Kills,
    /// The storage's server killed and restarted under load
    Restarts,
    /// A server that does not come back in time
    Gone,
    /// Requests that the server refuses, and an image that is too small
    Refused,
}

/// A run of the campaign.
struct Campaign<'a> {
    bed: &'a TestBed,
    scope: Scope,
    seed: u64,
    args: &'a Args,
}

/// Runs the part of `cargo xtask test`; of the quick form, one server that is killed under load.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let all = Args { long: scope == Scope::Long, server: String::new(), only: None, seed: None };
    let quick = Args { long: false, server: kinds::FILE.name.into(), only: Some(Part::Restarts), seed: None };
    run_some(&scope.quick_or(quick, all), report)
}

/// Runs the parts that `args` chooses.
pub fn run_some(args: &Args, report: &mut Report) -> Result<()> {
    let missing = debian::install(&[debian::NBD, debian::CEPH].concat());
    if !missing.is_empty() {
        report.skip("network", &format!("programs are missing: {}", missing.join(" ")));
        return Ok(());
    }
    let bed = TestBed::new()?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let scope = if args.long { Scope::Long } else { Scope::Full };
    let campaign = Campaign { bed: &bed, scope, seed, args };
    for part in Part::value_variants() {
        if args.only.is_none_or(|only| only == *part) {
            campaign.run(*part, report)?;
        }
    }
    Ok(())
}

impl Campaign<'_> {
    fn run(&self, part: Part, report: &mut Report) -> Result<()> {
        match part {
            Part::Trees => trees::run(self, report),
            Part::Programs => programs::run(self, report),
            Part::Kills => kills::run(self, report),
            Part::Restarts => restarts::run(self, report),
            Part::Gone => gone::run(self, report),
            Part::Refused => refused::run(self, report),
        }
    }

    /// Returns true if the server `server` is chosen.
    fn wants(&self, server: &str) -> bool {
        server.starts_with(&self.args.server)
    }

    /// Makes a volume on the image of a server. Only in the long form it has multi-mount
    /// protection, with which the first open after a kill waits for 42 s.
    fn mkfs(&self, server: &dyn Server) -> Result<()> {
        let options = self.scope.pick("-O ^mmp", "-O mmp");
        self.bed.parext4("mkfs").args(options).arg(server.url("")).run().map(drop)
    }

    /// Runs a case of a part on the server `server`, if it is chosen. A failure prints the command
    /// that repeats it.
    fn case(
        &self,
        part: Part,
        server: &str,
        what: &str,
        report: &mut Report,
        case: impl FnOnce() -> Result<()>,
    ) {
        if !self.wants(server) {
            return;
        }
        let part = part.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let repeat = |error: Error| {
            let long = if self.scope == Scope::Long { " --long" } else { "" };
            let args = format!("--only {part} --server {server} --seed {}", self.seed);
            anyhow!("{error:#}\nrepeat it by: cargo xtask network{long} {args}")
        };
        report.case(&format!("{part}, {server}{what}"), || case().map_err(repeat));
    }
}

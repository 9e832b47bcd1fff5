//! `parext4-bench` on network block devices beside fio's own engines for them, on the same image:
//! what the file system costs.
//!
//! fio uses the bytes of the image after the volume, so that both programs use one server and one
//! image in turn.

mod nbd;
mod rbd;
mod report;
mod rows;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::{Cmd, cmd};
use crate::testbed::TestBed;
use crate::{debian, interrupt};
use report::Report;
use rows::{ROWS, Row, Unit};

/// What to measure, and for how long.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each program, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Only servers whose names begin with NAME
    #[arg(long, value_name = "NAME", default_value = "")]
    server: String,
    /// Only rows whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    row: String,
}

/// Size of the volume in bytes, which begins at the start of the image.
const VOLUME: u64 = 3 << 30;
/// Size of the part of the image after the volume, for fio.
const RAW: u64 = 1 << 30;

/// An image on a server, as the two programs name it.
trait Server {
    /// The name of the server and of how it stores the image.
    fn name(&self) -> &str;
    /// The image, for parext4.
    fn url(&self) -> String;
    /// fio with its engine for this server and the image.
    fn fio(&self) -> Cmd;
    /// Jobs of fio for a row's. By default the same.
    fn jobs(&self, words: &str) -> String {
        words.to_owned()
    }
    /// A sentence about what limits the server.
    fn limits(&self) -> &str;
}

/// Starts a server whose image has this many bytes.
type Start = fn(&TestBed, u64) -> Result<Box<dyn Server>>;

const SERVERS: &[(&str, Start)] = &[
    ("nbdkit-memory", nbd::memory),
    ("nbdkit-delay", nbd::delayed),
    ("qemu-nbd-file", nbd::qemu),
    ("rbd-memory", rbd::memory),
];

/// Measures all rows on all servers.
pub fn run(args: &Args) -> Result<()> {
    for tools in [debian::NBD, debian::CEPH, debian::KERNEL_MOUNTS] {
        let missing = debian::install(tools);
        anyhow::ensure!(missing.is_empty(), "programs are missing: {}", missing.join(" "));
    }
    let bed = TestBed::release()?;
    for (name, start) in SERVERS.iter().filter(|(name, _)| name.starts_with(&args.server)) {
        let server = start(&bed, VOLUME + RAW).with_context(|| format!("starting {name}"))?;
        measure_server(&bed, &*server, args)?;
    }
    Ok(())
}

/// Measures all rows on one server, and prints them.
fn measure_server(bed: &TestBed, server: &dyn Server, args: &Args) -> Result<()> {
    // A part of the image that was never written would cost the server more, and librbd less.
    fio(server, "--rw=write --bs=1m --iodepth=16 --offset=0 --size=100%").run()?;
    println!("{}: {}", server.name(), server.limits());
    let mut report = Report::new(args.runs);
    for row in ROWS.iter().filter(|row| row.name.contains(&args.row)) {
        // Without a claim by MMP, which waits at each open: it costs nothing while the volume is
        // open.
        let mkfs = format!("mkfs --force -O ^mmp --size={VOLUME} {}", server.url());
        bed.parext4(&mkfs).run()?;
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for round in 0..args.runs {
            interrupt::check()?;
            // The programs alternate in going first.
            if round % 2 == 0 {
                ours.push(by_parext4(bed, server, row, row.ours, args)?);
                others.push(by_other(bed, server, row, args)?);
            } else {
                others.push(by_other(bed, server, row, args)?);
                ours.push(by_parext4(bed, server, row, row.ours, args)?);
            }
        }
        report.add(row, &ours, &others);
    }
    Ok(())
}

fn by_other(bed: &TestBed, server: &dyn Server, row: &Row, args: &Args) -> Result<f64> {
    match row.other {
        rows::Other::Fio(words) => by_fio(server, words, row.unit, args),
        rows::Other::Parext4(words) => by_parext4(bed, server, row, words, args),
    }
}

fn by_parext4(bed: &TestBed, server: &dyn Server, row: &Row, words: &str, args: &Args) -> Result<f64> {
    let command = bed
        .bench()
        .args(words)
        .arg(format!("--runtime={}s", args.seconds))
        .arg(format!("--target=lib:{}", server.url()));
    let (line, field) = (command.line().to_owned(), row.unit.field_of_parext4());
    let report: Value = serde_json::from_str(&command.run()?).with_context(|| line.clone())?;
    report[field].as_f64().with_context(|| format!("`{line}` has no field {field}"))
}

fn by_fio(server: &dyn Server, words: &str, unit: Unit, args: &Args) -> Result<f64> {
    let command = fio(server, &server.jobs(words))
        .args("--group_reporting --output-format=json --time_based")
        .arg(format!("--runtime={}", args.seconds));
    let line = command.line().to_owned();
    let text = command.run()?;
    // librbd writes to the same outputs.
    let json = text.find('{').map_or("", |start| &text[start..]);
    let parsed = serde_json::Deserializer::from_str(json).into_iter::<Value>().next();
    let report = parsed.with_context(|| line.clone())?.with_context(|| line.clone())?;
    let rate = ["write", "read"].map(|direction| report["jobs"][0][direction][unit.field_of_fio()].as_f64());
    rate.into_iter().flatten().find(|&rate| rate > 0.0).with_context(|| format!("`{line}` has no rate"))
}

/// fio on the part of the image after the volume.
fn fio(server: &dyn Server, words: &str) -> Cmd {
    server
        .fio()
        .args("--name=raw --thread")
        .arg(format!("--offset={VOLUME}"))
        .arg(format!("--size={RAW}"))
        .args(words)
}

/// fio, with which servers of this module begin.
fn fio_command() -> Cmd {
    cmd("fio")
}

//! Direct overwrites of a file mapped by indirect blocks, and of one mapped by extents.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Args, places};
use crate::interrupt;
use crate::quantile::median;
use crate::testbed::TestBed;

const FORMATS: [(&str, &str); 2] = [("extents", ""), ("indirect blocks", "-O ^extent,^64bit")];

pub fn run(bed: &TestBed, args: &Args) -> Result<()> {
    let (millis, size) = if args.quick { (100, "16m") } else { (2000, "512m") };
    println!(
        "direct random overwrites of 4 KiB: medians of {} runs in turn, in thousands per second",
        args.runs
    );
    for (place, folder) in places(bed) {
        for threads in [1, 8] {
            let mut rates = [Vec::new(), Vec::new()];
            for round in 0..args.runs as usize {
                for nth in [round % 2, 1 - round % 2] {
                    interrupt::check()?;
                    rates[nth].push(rate(bed, &folder, FORMATS[nth].1, threads, millis, size)?);
                }
            }
            for ((name, _), rates) in FORMATS.iter().zip(&rates) {
                println!("  {place:<12}{threads:>2} threads  {name:<18}{:>9.1}", median(rates) / 1000.0);
            }
        }
    }
    Ok(())
}

/// Returns the overwrites per second on a new image in a folder.
fn rate(bed: &TestBed, folder: &Path, mkfs: &str, threads: u32, millis: u32, size: &str) -> Result<f64> {
    let image = tempfile::NamedTempFile::new_in(folder)?;
    image.as_file().set_len(2 << 30)?;
    bed.parext4("mkfs --force").args(mkfs).arg(image.path()).run()?;
    let command = bed
        .bench()
        .args("--rw=randwrite --direct=1 --bs=4k --iodepth=1")
        .arg(format!("--numjobs={threads}"))
        .arg(format!("--size={size}"))
        .arg(format!("--runtime={millis}ms"))
        .arg(format!("--target=lib:{}", image.path().display()));
    let line = command.line().to_owned();
    let report: Value = serde_json::from_str(&command.run()?).with_context(|| line.clone())?;
    report["iops"].as_f64().with_context(|| format!("`{line}` names no rate"))
}

//! The result of a run.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Statistics of the operations of one thread, or of all threads.
#[derive(Clone, Debug)]
pub struct OpStats {
    pub ops: u64,
    pub bytes: u64,
    /// Nanoseconds of each operation, from submission to harvest.
    latency: Histogram<u64>,
}

impl OpStats {
    pub fn new() -> Result<Self> {
        const LONGEST: u64 = 1_000_000_000_000;
        let latency = Histogram::new_with_bounds(1, LONGEST, 2).context("making a histogram")?;
        Ok(Self { ops: 0, bytes: 0, latency })
    }

    /// Counts an operation.
    pub fn add(&mut self, bytes: u64, took: Duration) {
        self.ops += 1;
        self.bytes += bytes;
        self.latency.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the statistics without the times of single operations.
    pub fn without_latencies(self) -> Result<Self> {
        Ok(Self { ops: self.ops, bytes: self.bytes, ..Self::new()? })
    }

    /// Adds the operations of another thread.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.latency.add(&other.latency).context("adding histograms")
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub stats: OpStats,
    pub elapsed: Duration,
    /// Operations per second of each job until its end; empty if jobs are not measured separately.
    pub job_rates: Vec<f64>,
    /// CPU time of this process. Kernel threads, such as a loop device's, are not included.
    pub cpu: Duration,
    /// Number of extents of all files, if known, and the smallest possible number.
    pub extents: Option<(u64, u64)>,
}

impl Outcome {
    /// Returns the result of a single job whose extents are not counted.
    pub fn of_one_job(stats: OpStats, elapsed: Duration, cpu: Duration) -> Self {
        Self { stats, elapsed, job_rates: Vec::new(), cpu, extents: None }
    }

    /// Returns the result of `ops` operations of another program, whose single operations are not
    /// measured.
    pub fn of_program(ops: u64, elapsed: Duration) -> Result<Self> {
        let stats = OpStats { ops, ..OpStats::new()? };
        Ok(Self::of_one_job(stats, elapsed, Duration::ZERO))
    }

    pub fn iops(&self) -> f64 {
        self.stats.ops as f64 / self.elapsed.as_secs_f64()
    }

    pub fn mib_s(&self) -> f64 {
        self.stats.bytes as f64 / self.elapsed.as_secs_f64() / f64::from(1 << 20)
    }

    /// Returns the operations per second of the slowest job and of the fastest job.
    pub fn slowest_and_fastest(&self) -> Option<(f64, f64)> {
        let (slowest, fastest) = (f64::min, f64::max);
        let all = || self.job_rates.iter().copied();
        Some((all().reduce(slowest)?, all().reduce(fastest)?))
    }

    /// Returns the microseconds of CPU time per operation.
    pub fn cpu_us_per_op(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.stats.ops.max(1) as f64
    }

    /// Returns true if the times of single operations are known.
    pub fn has_latency(&self) -> bool {
        !self.stats.latency.is_empty()
    }

    /// Returns a percentile of the latency in microseconds.
    pub fn latency_us(&self, percentile: f64) -> f64 {
        self.stats.latency.value_at_percentile(percentile) as f64 / 1e3
    }

    /// Returns the fields for a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "iops": self.iops(),
            "mib_s": self.mib_s(),
            "ops": self.stats.ops,
            "seconds": self.elapsed.as_secs_f64(),
            "latency_us": {
                "mean": self.stats.latency.mean() / 1e3,
                "p50": self.latency_us(50.0),
                "p90": self.latency_us(90.0),
                "p99": self.latency_us(99.0),
                "p99.9": self.latency_us(99.9),
                "max": self.latency_us(100.0),
            },
            "iops_slowest_job": self.slowest_and_fastest().map(|(slowest, _)| slowest),
            "iops_fastest_job": self.slowest_and_fastest().map(|(_, fastest)| fastest),
            "cpu_us_per_op": self.cpu_us_per_op(),
            "extents": self.extents.map(|(found, _)| found),
            "extents_ideal": self.extents.map(|(_, ideal)| ideal),
        })
    }

    /// Prints the result as text.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let (iops, mib_s, seconds) = (self.iops(), self.mib_s(), self.elapsed.as_secs_f64());
        writeln!(out, "{iops:.0} IOPS, {mib_s:.1} MiB/s: {} operations in {seconds:.2} s", self.stats.ops)?;
        let [p50, p90, p99, most] = [50.0, 90.0, 99.0, 100.0].map(|percentile| self.latency_us(percentile));
        writeln!(out, "latency in us: 50 % {p50:.0}, 90 % {p90:.0}, 99 % {p99:.0}, longest {most:.0}")?;
        if let Some((slowest, fastest)) = self.slowest_and_fastest() {
            writeln!(out, "slowest job {slowest:.0} IOPS, fastest {fastest:.0}")?;
        }
        writeln!(out, "CPU time of this process: {:.2} us an operation", self.cpu_us_per_op())?;
        if let Some((found, ideal)) = self.extents {
            writeln!(out, "extents: {found}, at best {ideal}")?;
        }
        Ok(())
    }
}

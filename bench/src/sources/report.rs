//! The results of all cases, as a table and as JSON.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use indicatif::BinaryBytes;
use parext4_cli::median::median;
use serde_json::{Value, json};

use super::cases::{Case, Participant, Storage, Subject};
use super::databases::Database;
use super::environment::Environment;
use super::metadata::{Names, Tree};
use super::workload::Workload;
use crate::engine::Engine;
use crate::outcome::Outcome;

/// The results of all cases.
pub struct Report {
    pub cases: Vec<Measured>,
}

/// The results of a case.
pub struct Measured {
    pub row: Case,
    pub lines: Vec<Line>,
    /// Microseconds of each request on the simulated device, if the case has one.
    latency_us: Option<f64>,
}

/// The results of a participant.
pub struct Line {
    run: Participant,
    work: Workload,
    pub label: String,
    device: String,
    outcomes: Vec<Outcome>,
    /// The error of a failed run.
    failure: Option<String>,
}

/// Prints the cases and their participants.
pub fn list(cases: &[Case], out: &mut impl Write) -> Result<()> {
    for row in cases {
        writeln!(out, "{} {}", row.source, row.case)?;
        for which in 0..row.runs.len() {
            writeln!(out, "    {}", row.label(which))?;
        }
    }
    Ok(())
}

impl Report {
    pub fn new(cases: &[Case], environment: &Environment) -> Self {
        let line = |row: &Case, which: usize| {
            let run = row.runs[which];
            let device = environment.device_of(run.on);
            let (work, label) = (row.work.clone(), row.label(which));
            Line { run, work, label, device, outcomes: Vec::new(), failure: None }
        };
        let measured = |row: &Case| {
            let lines = (0..row.runs.len()).map(|which| line(row, which)).collect();
            Measured { row: row.clone(), lines, latency_us: None }
        };
        Self { cases: cases.iter().map(measured).collect() }
    }

    /// Adds a run.
    pub fn add(&mut self, row: usize, which: usize, result: Result<Outcome>) {
        let line = &mut self.cases[row].lines[which];
        match result {
            Ok(outcome) => line.outcomes.push(outcome),
            Err(error) => line.failure = Some(format!("{error:#}")),
        }
    }

    /// Sets the latency of the simulated device of a case.
    pub fn set_latency(&mut self, row: usize, latency: Duration) {
        self.cases[row].latency_us = Some(latency.as_secs_f64() * 1e6);
    }

    /// Returns true if a run of the participant failed. It is not run again then.
    pub fn has_failed(&self, row: usize, which: usize) -> bool {
        self.cases[row].lines[which].failure.is_some()
    }

    /// Returns the title of the table and the picture.
    pub fn title(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let rounds = self.cases.iter().flat_map(|row| &row.lines).map(|line| line.outcomes.len()).max();
        format!("{cores} cores, medians of {} runs in turn", rounds.unwrap_or(0))
    }

    /// Prints the table.
    pub fn print(&self, out: &mut impl Write) -> Result<()> {
        writeln!(out, "{}", self.title())?;
        for measured in &self.cases {
            writeln!(out, "\n{}", measured.heading())?;
            let first = measured.lines[0].iops();
            for line in &measured.lines {
                writeln!(out, "{}", line.text(first))?;
            }
        }
        Ok(())
    }

    /// Returns the number of runs of parext4 or of the plain device that failed.
    pub fn failures(&self) -> usize {
        let lines = self.cases.iter().flat_map(|case| &case.lines);
        lines.filter(|line| line.failure.is_some() && !matches!(line.run.on, Subject::FileSystem(_))).count()
    }

    /// Returns the results as JSON.
    pub fn to_json(&self) -> Value {
        let objects = |measured: &'_ Measured| -> Vec<Value> {
            measured.lines.iter().map(|line| line.to_json(measured)).collect()
        };
        self.cases.iter().flat_map(objects).collect()
    }
}

impl Measured {
    /// Returns the heading of the case.
    pub fn heading(&self) -> String {
        let latency = self.latency_us.map(|us| format!(", device of {us:.0} us")).unwrap_or_default();
        let cache = self.row.cache.map(|bytes| format!(", cache of {}", BinaryBytes(bytes)));
        let cache = cache.unwrap_or_default();
        format!("{} {}: {}{latency}{cache}", self.row.source, self.row.case, self.row.work)
    }
}

impl Line {
    fn median(&self, field: impl Fn(&Outcome) -> f64) -> f64 {
        median(&self.outcomes.iter().map(field).collect::<Vec<_>>())
    }

    /// Returns the operations per second; 0 without results.
    pub fn iops(&self) -> f64 {
        self.median(Outcome::iops)
    }

    /// Returns the operations per second of the slowest job, if jobs are measured separately.
    fn slowest_job(&self) -> Option<f64> {
        let slowest = |run: &Outcome| run.slowest_and_fastest().map(|(slowest, _)| slowest);
        let all: Vec<f64> = self.outcomes.iter().map(slowest).collect::<Option<_>>()?;
        (!all.is_empty()).then(|| median(&all))
    }

    /// Returns the MiB of data per second, if the workload moves data.
    fn mib_s(&self) -> Option<f64> {
        self.work.moves_data().then(|| self.median(Outcome::mib_s))
    }

    /// Returns the duration in seconds, if the workload is a single task.
    fn seconds(&self) -> Option<f64> {
        self.work.is_task().then(|| self.elapsed())
    }

    fn elapsed(&self) -> f64 {
        self.median(|outcome| outcome.elapsed.as_secs_f64())
    }

    /// Returns the subject.
    pub fn on(&self) -> Subject {
        self.run.on
    }

    /// Returns true if the engine has its default settings.
    pub fn is_default(&self) -> bool {
        self.run.engine == Engine::DEFAULT
    }

    /// Returns a summary of the results.
    pub fn value(&self) -> String {
        match &self.failure {
            Some(_) => "failed".into(),
            None => {
                let extents =
                    self.extents().map(|(found, ideal)| format!(", {found} extents (best: {ideal})"));
                let data = self.mib_s().map(|mib_s| format!(", {mib_s:.1} MiB/s"));
                let time = self.seconds().map(|seconds| format!(", {seconds:.2} s"));
                let more = data.into_iter().chain(time).chain(extents).collect::<String>();
                format!("{:.0} {}{more}", self.iops(), self.work.unit())
            }
        }
    }

    /// Returns the line of the table; `first` is the rate of the first line of the case.
    fn text(&self, first: f64) -> String {
        let label = &self.label;
        if let Some(failure) = &self.failure {
            return format!("  {label:<58} {failure}");
        }
        let (iops, unit) = (self.iops(), self.work.unit());
        let data = self.mib_s().map(|mib_s| format!("{mib_s:>8.1} MiB/s")).unwrap_or_default();
        let mut text = format!("  {label:<58}{iops:>10.0} {unit:<4} {data}");
        if first > 0.0 {
            text += &format!("{:>8.2}", iops / first);
        }
        if let Some(seconds) = self.seconds() {
            text += &format!("  {seconds:.2} s");
        }
        if let Some((found, ideal)) = self.extents() {
            text += &format!("  extents {found}, at best {ideal}");
        }
        if self.work.has_tails() && self.outcomes.iter().all(Outcome::has_latency) {
            let [tail, most] =
                [99.9, 100.0].map(|percentile| self.median(|run| run.latency_us(percentile) / 1e3));
            text += &format!("  99.9 % {tail:.1} ms, longest {most:.1} ms");
        }
        text
    }

    /// Returns the medians of the number of extents and of the smallest possible number.
    fn extents(&self) -> Option<(f64, f64)> {
        let all: Option<Vec<(u64, u64)>> = self.outcomes.iter().map(|outcome| outcome.extents).collect();
        let all = all.filter(|all| !all.is_empty())?;
        let (found, ideal): (Vec<f64>, Vec<f64>) =
            all.into_iter().map(|(found, ideal)| (found as f64, ideal as f64)).unzip();
        Some((median(&found), median(&ideal)))
    }

    fn to_json(&self, measured: &Measured) -> Value {
        let Participant { on, files, engine, .. } = self.run;
        let is_lib = matches!(on, Subject::Lib(_));
        let extents = self.extents();
        let rates: Vec<f64> = self.outcomes.iter().map(Outcome::iops).collect();
        let has_latency = self.outcomes.iter().all(Outcome::has_latency);
        let latency = |percentile| has_latency.then(|| self.median(|outcome| outcome.latency_us(percentile)));
        let mut value = json!({
            "source": measured.row.source,
            "case": measured.row.case,
            "target": on.target(),
            "device": self.device,
            "sim_latency_us": matches!(on, Subject::Lib(Storage::Simulated)).then_some(measured.latency_us),
            "policy": is_lib.then(|| engine.policy.to_string()),
            "split_at": is_lib.then(|| engine.split_at.to_string()),
            "serialize_allocation_from": is_lib.then_some(engine.serialize_from),
            "files": files.name(),
            "cache": measured.row.cache,
            "iops": self.iops(),
            "mib_s": self.median(Outcome::mib_s),
            "iops_slowest_job": self.slowest_job(),
            "seconds": self.elapsed(),
            "latency_p50_us": latency(50.0),
            "latency_p99_us": latency(99.0),
            "latency_p99_9_us": latency(99.9),
            "latency_max_us": latency(100.0),
            "cpu_us_per_op": self.median(Outcome::cpu_us_per_op),
            "extents": extents.map(|(found, _)| found),
            "extents_ideal": extents.map(|(_, ideal)| ideal),
            "runs": rates.len(),
            "iops_of_each_run": rates,
            "failure": self.failure,
        });
        if let (Some(all), Value::Object(work)) =
            (value.as_object_mut(), workload_json(&self.work, &self.run))
        {
            all.extend(work);
        }
        value
    }
}

/// Returns the fields of the workload for the JSON object of a line.
fn workload_json(workload: &Workload, run: &Participant) -> Value {
    match workload {
        Workload::Blocks(job) => json!({
            "layout": run.layout_in(job).name(),
            "rw": job.rw.name(),
            "direct": job.direct,
            "punch": run.punch,
            "bs": job.block.to_string(),
            "numjobs": job.numjobs,
            "iodepth": job.iodepth,
            "ioengine": job.ioengine.name(),
            "in_step": job.in_step,
            "size": job.size,
        }),
        Workload::Names(Names { operation, threads, files, .. }) => json!({
            "operation": operation.name(),
            "numjobs": threads,
            "files_per_job": files,
        }),
        Workload::Tree(Tree { task, files }) => json!({
            "operation": task.name(),
            "numjobs": 1,
            "files_per_job": files,
        }),
        Workload::Database(Database { task, scale, .. }) => json!({
            "operation": task.name(),
            "scale": scale,
        }),
    }
}

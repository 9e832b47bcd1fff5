//! What passed, failed and was skipped, and how long it took.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::{cpu, interrupt, slowest};

/// The line above the summary.
const SUMMARY: &str = "== summary";

/// The sums of a run.
#[derive(Default)]
pub struct Report {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
    skipped: Vec<String>,
    times: Vec<String>,
}

impl Report {
    /// Runs one case and counts it.
    pub fn case(&mut self, name: &str, case: impl FnOnce() -> Result<()>) {
        if interrupt::requested() {
            return;
        }
        let start = Instant::now();
        let result = case();
        self.done(name, start.elapsed(), result);
    }

    /// Counts a case that took `time`.
    pub fn done(&mut self, name: &str, time: Duration, result: Result<()>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("  ok    {name} ({:.1} s)", time.as_secs_f64());
            }
            Err(error) => self.fail(name, &format!("{error:#}")),
        }
    }

    /// Adds the sums of a test program.
    pub fn add(&mut self, passed: u64, failed: u64) {
        self.passed += passed;
        self.failed += failed;
    }

    /// Counts a failure.
    pub fn fail(&mut self, name: &str, why: &str) {
        println!("  FAIL  {name}: {why}");
        self.failed += 1;
        self.note_failure(name, why);
    }

    /// Names in the summary a failure that the sums already hold.
    pub fn note_failure(&mut self, name: &str, why: &str) {
        self.failures.push(format!("{name}: {}", why.lines().next().unwrap_or_default()));
    }

    /// Says loudly that something was left out; under continuous integration that is a failure.
    pub fn skip(&mut self, name: &str, why: &str) {
        if ci() {
            self.fail(name, &format!("may not be skipped under CI: {why}"));
        } else {
            self.skip_allowed(name, why);
        }
    }

    /// Says loudly that something was left out which may be left out anywhere.
    pub fn skip_allowed(&mut self, name: &str, why: &str) {
        println!("  SKIPPED  {name}: {why}");
        self.skipped.push(format!("{name}: {why}"));
    }

    /// Runs a step under a heading, and notes its time, its processor time and its slowest calls.
    pub fn step(&mut self, name: &str, step: impl FnOnce(&mut Report) -> Result<()>) {
        println!("\n== {name}");
        let (start, cpu) = (Instant::now(), cpu::used());
        if let Err(error) = interrupt::check().and_then(|()| step(self)) {
            self.fail(name, &format!("{error:#}"));
        }
        let seconds = start.elapsed().as_secs_f64();
        let cpu = cpu::used().saturating_sub(cpu).as_secs_f64();
        let slowest = slowest::take();
        println!("== {name}: {seconds:.1} s, {cpu:.1} s of processors; {slowest}");
        let times = format!("{seconds:8.1} s {cpu:8.1} s of processors  {name:16}{slowest}");
        self.times.push(times.trim_end().to_owned());
    }

    /// Adds the summary that another process has printed as one of `lines`.
    pub fn add_summary(&mut self, lines: &[String], name: &str) {
        let summary = lines.iter().skip_while(|line| *line != SUMMARY).skip(1);
        let mut has_sums = false;
        for line in summary {
            if let Some(why) = line.strip_prefix("SKIPPED  ") {
                self.skipped.push(why.to_owned());
            } else if let Some(why) = line.strip_prefix("FAILED   ") {
                self.failures.push(why.to_owned());
            } else if let Some((passed, failed)) = sums(line) {
                self.add(passed, failed);
                has_sums = true;
            } else {
                self.times.push(line.clone());
            }
        }
        if !has_sums {
            self.fail(name, "ended without a summary");
        }
    }

    /// Prints the summary; its last line is `N passed, N failed`. Returns whether nothing failed.
    pub fn finish(self) -> bool {
        println!("\n{SUMMARY}");
        self.times.iter().for_each(|line| println!("{line}"));
        self.skipped.iter().for_each(|line| println!("SKIPPED  {line}"));
        self.failures.iter().for_each(|line| println!("FAILED   {line}"));
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed == 0
    }
}

/// Parses the last line of a summary.
fn sums(line: &str) -> Option<(u64, u64)> {
    let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

/// Whether this runs under continuous integration, where nothing may be skipped.
pub fn ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_summary_of_another_process_is_added() {
        let mut report = Report::default();
        report.add(3, 0);
        let printed = "9 passed, 9 failed\n== summary\n     1.5 s  tree\nFAILED   tree: no\nSKIPPED  kill: why\n4 passed, 1 failed";
        report.add_summary(&lines(printed), "tree");
        assert_eq!((report.passed, report.failed), (7, 1));
        assert_eq!(report.failures, ["tree: no"]);
        assert_eq!(report.skipped, ["kill: why"]);
        assert_eq!(report.times, ["     1.5 s  tree"]);
    }

    #[test]
    fn a_process_without_a_summary_has_failed() {
        let mut report = Report::default();
        report.add_summary(&lines("thread main panicked"), "tree");
        assert_eq!(report.failed, 1);
    }
}

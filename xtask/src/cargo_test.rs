//! `cargo test`, with its sums counted, and what its tests skipped.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use crate::command::Cmd;
use crate::report::Report;
use crate::scope::Scope;
use crate::slowest::Log;

/// What a test command has printed.
#[derive(Default)]
struct Sums {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
}

/// Durations and numbers of operations of the tests in the quick form. CONTRIBUTING.md describes
/// the variables.
const QUICK: &[(&str, &str)] = &[
    ("PAREXT4_DAMAGE", "6"),
    ("PAREXT4_FAULT_SAMPLE", "1"),
    ("PAREXT4_FSX_OPS", "1000"),
    ("PAREXT4_KILL_ROUNDS", "2"),
    ("PAREXT4_MIXED_SECONDS", "0.5"),
    ("PAREXT4_MODEL_FACTOR", "0.1"),
    ("PAREXT4_NAMES_OPS", "250"),
    ("PAREXT4_NBD_KILLS", "2"),
    ("PAREXT4_STRESS_SECONDS", "0.4"),
];

/// Returns a command of tests with durations and numbers of operations by the scope.
pub fn scaled(command: Cmd, scope: Scope) -> Cmd {
    let settings = scope.quick_or(QUICK, &[]);
    settings.iter().fold(command, |command, (variable, value)| command.env(variable, value))
}

/// Runs a test command, shows what it prints, and adds the sums, the slowest calls and the skipped
/// tests of its test programs to the report.
pub fn run(command: Cmd, name: &str, report: &mut Report) -> Result<()> {
    run_all(vec![command], name, report)
}

/// Like [`run`], with several commands at the same time.
pub fn run_all(commands: Vec<Cmd>, name: &str, report: &mut Report) -> Result<()> {
    let log = Log::new()?;
    // The harness shows no output of tests that pass.
    let skipped = NamedTempFile::new().context("a file for skipped tests")?;
    let one = |command: Cmd| {
        let line = command.line().to_owned();
        let mut sums = Sums::default();
        let status = command
            .env("PAREXT4_SLOWEST", log.path())
            .env("PAREXT4_SKIPPED", skipped.path())
            .each_line(|text| sums.read(text))?;
        Ok((line, status, sums))
    };
    let results: Vec<Result<_>> = thread::scope(|scope| {
        let runs: Vec<_> = commands.into_iter().map(|command| scope.spawn(|| one(command))).collect();
        runs.into_iter().map(|run| run.join().expect("no run panics")).collect()
    });
    log.finish()?;
    for (why, tests) in by_reason(&std::fs::read_to_string(skipped.path())?) {
        // A test that may not be skipped here has failed.
        report.skip_allowed(&format!("{name}: {}", tests.join(", ")), why);
    }
    for result in results {
        let (line, status, Sums { passed, failed, failures }) = result?;
        report.add(passed, failed);
        failures.iter().for_each(|test| report.note_failure(name, test));
        if passed + failed == 0 {
            report.fail(name, &format!("`{line}` ran no test: {status}"));
        } else if !status.success() && failed == 0 {
            report.fail(name, &format!("`{line}`: {status}"));
        }
    }
    Ok(())
}

/// Returns the tests of each reason, from the lines `TEST: WHY` that `device_testkit::skip`
/// appends.
fn by_reason(lines: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (test, why) in lines.lines().filter_map(|line| line.split_once(": ")) {
        let tests = reasons.entry(why).or_default();
        if !tests.contains(&test) {
            tests.push(test);
        }
    }
    reasons
}

impl Sums {
    /// Counts a line, and shows it.
    fn read(&mut self, text: &str) {
        if let Some((ok, bad)) = sums(text) {
            self.passed += ok;
            self.failed += bad;
        } else if let Some(test) =
            text.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED"))
        {
            self.failures.push(test.to_owned());
        }
        if !is_noise(text) {
            println!("{text}");
        }
    }
}

/// Passed and failed, of a line such as `test result: ok. 12 passed; 0 failed; ...`.
fn sums(line: &str) -> Option<(u64, u64)> {
    let mut parts = line.strip_prefix("test result: ")?.split("; ");
    let passed = parts.next()?.split(' ').nth(1)?.parse().ok()?;
    let failed = parts.next()?.split(' ').next()?.parse().ok()?;
    Some((passed, failed))
}

/// Lines of test programs that say nothing when there are hundreds of them.
fn is_noise(line: &str) -> bool {
    line.is_empty()
        || line.starts_with("running ")
        || (line.starts_with("test ") && line.ends_with(" ... ok"))
}

#[cfg(test)]
mod tests {
    use super::{by_reason, sums};

    #[test]
    fn skipped_tests_are_listed_by_reason() {
        let lines = "a::b: no root\nmain: no quota: off\na::b: no root\nc: no root\n";
        let reasons: Vec<_> = by_reason(lines).into_iter().collect();
        assert_eq!(reasons, [("no quota: off", vec!["main"]), ("no root", vec!["a::b", "c"])]);
    }

    #[test]
    fn sums_of_a_result_line() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(sums(line), Some((12, 3)));
        assert_eq!(sums("test result: ok. 1 passed; 0 failed; 0 ignored"), Some((1, 0)));
        assert_eq!(sums("test a::b ... ok"), None);
    }
}

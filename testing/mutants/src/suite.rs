//! The tests of an area: which mutants each test reaches, and how long it takes.
//!
//! A test that does not reach a mutant cannot notice it. So each test runs once without a mutant,
//! alone in its process, and records the mutants that it reaches.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::areas::{Area, Program};
use crate::command::{Limits, limited, run};
use crate::compile::{Built, Executable};

/// Seconds that stress tests run in each configuration.
const STRESS_SECONDS: &str = "1";

/// Share of the usual schedules that models try: one schedule in ten finds most mutants.
const MODEL_FACTOR: &str = "0.1";

/// Limits of a test without a mutant.
const PATIENCE: Limits = Limits { longest: Duration::from_mins(5), idle: Duration::from_mins(5) };

/// The least limit of the time of a test with a mutant.
const LEAST_LIMIT: Duration = Duration::from_secs(20);

/// A test with a mutant has this many times its usual time.
const FACTOR: u32 = 10;

/// A test.
pub struct Test<'a> {
    executable: &'a Executable,
    /// The name in its program.
    pub name: String,
    /// The mutants that it reaches.
    pub reached: BTreeSet<u32>,
    /// Its time without a mutant.
    pub time: Duration,
}

/// The end of a run of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has passed.
    Passed,
    /// It has failed.
    Failed,
    /// It was ended because it exceeded its limit.
    TimedOut,
}

impl<'a> Test<'a> {
    fn command(&self) -> Command {
        let mut command = limited(&self.executable.path.to_string_lossy());
        command
            .args(["--exact", &self.name, "--test-threads", "1", "--nocapture"])
            .current_dir(&self.executable.folder);
        // Models run without their planted faults, with which they fail anyway.
        command.env("PAREXT4_MODEL_FAULT", "None").env("PAREXT4_MODEL_FACTOR", MODEL_FACTOR);
        command.env("PAREXT4_STRESS_SECONDS", STRESS_SECONDS).stdin(Stdio::null());
        command
    }

    /// Runs the test with a mutant. Its output is shown if `shows`.
    ///
    /// # Errors
    /// If it cannot be started, or the user interrupts.
    pub fn run(&self, mutant: u32, shows: bool) -> Result<End> {
        let mut command = self.command();
        command.env("PAREXT4_MUTANT", mutant.to_string());
        if !shows {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let idle = self.time * FACTOR;
        let status = run(command, Limits { longest: LEAST_LIMIT.max(idle), idle })?;
        Ok(status.map_or(End::TimedOut, |status| if status.success() { End::Passed } else { End::Failed }))
    }

    /// Runs the test without a mutant, and records what it reaches in `log`.
    fn record(executable: &'a Executable, name: String, log: &Path) -> Result<Self> {
        // A test that reaches no mutant writes no file.
        let _ = fs::remove_file(log);
        let mut test = Self { executable, name, reached: BTreeSet::new(), time: Duration::ZERO };
        let mut command = test.command();
        command.env("PAREXT4_MUTANTS_REACHED", log).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = run(command, PATIENCE)?;
        test.time = start.elapsed();
        ensure!(status.is_some_and(|status| status.success()), "{} fails without a mutant", test.name);
        let numbers = fs::read_to_string(log).unwrap_or_default();
        test.reached = numbers.lines().filter_map(|number| number.parse().ok()).collect();
        Ok(test)
    }
}

/// Returns the tests of `area` that reach a mutant, the fastest first.
///
/// # Errors
/// If a test fails without a mutant.
pub fn tests<'a>(area: &Area, built: &'a Built, log: &Path) -> Result<Vec<Test<'a>>> {
    let mut tests = Vec::new();
    for program in area.programs {
        let executables = built.programs.get(&(area.package, program.build)).into_iter().flatten();
        for executable in executables.filter(|executable| executable.name == program.name) {
            for name in names(program, executable)? {
                tests.push(Test::record(executable, name, log)?);
            }
        }
    }
    tests.retain(|test| !test.reached.is_empty());
    tests.sort_by_key(|test| test.time);
    Ok(tests)
}

fn names(program: &Program, executable: &Executable) -> Result<Vec<String>> {
    let mut list = Command::new(&executable.path);
    list.args(["--list", "--format", "terse"]).current_dir(&executable.folder);
    let output = list.output().with_context(|| format!("{}", executable.path.display()))?;
    let text = String::from_utf8(output.stdout)?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let wanted = names
        .filter(|name| program.only.is_empty() || program.only.iter().any(|start| name.starts_with(start)));
    Ok(wanted.map(str::to_owned).collect())
}

//! The figures of an area, and the list of what the tests missed.

use std::fmt;

use crate::mutant::Mutant;
use crate::run::Outcome;

/// Least share of the mutants that are caught or argued, in percent.
pub const LEAST_PERCENT: f64 = 95.0;

/// The figures of an area.
#[derive(Debug, Default)]
pub struct Figures {
    /// Mutants that compile.
    pub mutants: usize,
    /// Mutants with which a test fails.
    pub caught: usize,
    /// Mutants with which a test does not end.
    pub timed_out: usize,
    /// Mutants with an argument why no test can notice them.
    pub argued: usize,
    /// All other mutants.
    pub missed: usize,
}

impl Figures {
    /// Counts an outcome. Returns the line of the log. `argument` says why no test can notice the
    /// mutant.
    pub fn add(&mut self, mutant: &Mutant, outcome: &Outcome, argument: Option<&str>) -> String {
        match outcome {
            Outcome::Caught(test) => {
                self.caught += 1;
                format!("caught {mutant}: {test}")
            }
            Outcome::TimedOut(test) => {
                self.timed_out += 1;
                format!("timed out {mutant}: {test}")
            }
            Outcome::Missed(tests) => match argument {
                Some(argument) => {
                    self.argued += 1;
                    format!("argued {mutant}: {argument}")
                }
                None => {
                    self.missed += 1;
                    format!("missed {mutant}: {tests} tests reach it")
                }
            },
        }
    }

    /// Returns the share of the mutants that are caught or argued, in percent.
    pub fn percent(&self) -> f64 {
        let done = self.caught + self.timed_out + self.argued;
        if self.mutants == 0 { 100.0 } else { 100.0 * done as f64 / self.mutants as f64 }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutants, caught, timed_out, argued, missed } = self;
        write!(
            f,
            "{mutants} mutants: {caught} caught, {timed_out} timed out, {argued} argued, {missed} missed"
        )?;
        write!(f, "; {:.1} % caught or argued", self.percent())
    }
}

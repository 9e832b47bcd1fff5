//! The run of one area: its tests without a mutant, its mutants, its figures, and the files that it
//! leaves for the next run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Result;

use crate::areas::Area;
use crate::catalogue::Catalogue;
use crate::compile::Built;
use crate::mutant::{Key, Mutant};
use crate::report::{Figures, LEAST_PERCENT};
use crate::run::{Outcome, try_all, try_mutant};
use crate::suite::{self, Test};

/// The mutants that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All without an argument why no test can notice them.
    NotArgued,
    /// All.
    All,
    /// The mutants that the last run missed.
    Missed,
    /// The mutant with this number, and the output of its tests is shown.
    One(u32),
}

/// The run of one area.
pub struct AreaRun<'a> {
    /// All mutants.
    pub catalogue: &'a Catalogue,
    /// The area.
    pub area: &'static Area,
    /// Its test programs.
    pub built: &'a Built,
    /// The folder for the log and the list of missed mutants.
    pub folder: &'a Path,
    /// The mutants that run.
    pub selection: Selection,
    /// Number of mutants that run at the same time.
    pub jobs: usize,
}

impl AreaRun<'_> {
    /// Runs the selected ones of the area's `mutants`. Returns true if enough of them are caught or
    /// argued.
    ///
    /// # Errors
    /// If a test fails without a mutant or cannot be started, or the user interrupts.
    pub fn run(&self, mutants: &[Mutant]) -> Result<bool> {
        println!("{}: running its tests without a mutant", self.area.name);
        let tests = suite::tests(self.area, self.built, &self.folder.join("reached"))?;
        let seconds: f64 = tests.iter().map(|test| test.time.as_secs_f64()).sum();
        println!(
            "{}: {} tests reach mutants; one after the other they take {seconds:.0} s",
            self.area.name,
            tests.len()
        );
        if let Selection::One(number) = self.selection {
            let mutant = self.catalogue.mutant(number)?;
            let outcome = try_mutant(mutant, &tests, true)?;
            println!("{mutant}: {outcome:?}");
            return Ok(!matches!(outcome, Outcome::Missed(_)));
        }
        let figures = self.try_selected(mutants, &tests)?;
        println!("{}: {figures}", self.area.name);
        Ok(figures.percent() >= LEAST_PERCENT)
    }

    /// Runs the selected mutants, writes each outcome to the log, and remembers the mutants that
    /// the tests missed.
    fn try_selected(&self, mutants: &[Mutant], tests: &[Test<'_>]) -> Result<Figures> {
        let (selected, figures) = self.selected(mutants);
        let log = File::create(self.folder.join(format!("{}.log", self.area.name)))?;
        let state = Mutex::new((figures, log, Vec::new()));
        try_all(&selected, tests, self.jobs, |mutant, outcome| {
            let (figures, log, missed) = &mut *state.lock().expect("no thread panics");
            let line = figures.add(mutant, &outcome, self.catalogue.argument(mutant));
            // The log is for people; the run goes on without it.
            let _ = writeln!(log, "{line}");
            if line.starts_with("missed") {
                println!("  {line}");
                missed.push(mutant.key());
            }
        })?;
        let (figures, _, missed) = state.into_inner().expect("no thread panics");
        let lines: String = missed.iter().map(|key| format!("{key}\n")).collect();
        fs::write(self.missed_file(), lines)?;
        Ok(figures)
    }

    /// Returns the mutants to run, and figures that count the argued ones.
    fn selected<'m>(&self, mutants: &'m [Mutant]) -> (Vec<&'m Mutant>, Figures) {
        let missed = (self.selection == Selection::Missed).then(|| self.read_missed());
        let is_viable = |mutant: &&Mutant| !self.built.unviable.contains(&mutant.key());
        let mut selected: Vec<&Mutant> = mutants.iter().filter(is_viable).collect();
        selected.retain(|mutant| missed.as_ref().is_none_or(|missed| missed.contains(&mutant.key())));
        let mut figures = Figures { mutants: selected.len(), ..Figures::default() };
        if self.selection != Selection::All {
            selected.retain(|mutant| self.catalogue.argument(mutant).is_none());
            figures.argued = figures.mutants - selected.len();
        }
        (selected, figures)
    }

    fn missed_file(&self) -> PathBuf {
        self.folder.join(format!("{}.missed", self.area.name))
    }

    fn read_missed(&self) -> BTreeSet<Key> {
        let text = fs::read_to_string(self.missed_file()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

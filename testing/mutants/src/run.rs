//! Runs the tests with one mutant after the other, on several processors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;

use crate::mutant::Mutant;
use crate::suite::{End, Test};

/// The outcome of the tests with a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This test fails.
    Caught(String),
    /// This test does not end.
    TimedOut(String),
    /// All tests that reach it pass; this is their number.
    Missed(usize),
}

/// Runs the tests with `mutant`, until one fails.
///
/// # Errors
/// If a test cannot be started, or the user interrupts.
pub fn try_mutant(mutant: &Mutant, tests: &[Test<'_>], shows: bool) -> Result<Outcome> {
    let reaching: Vec<_> = tests.iter().filter(|test| test.reached.contains(&mutant.number)).collect();
    for test in &reaching {
        match test.run(mutant.number, shows)? {
            End::Passed => {}
            End::Failed => return Ok(Outcome::Caught(test.name.clone())),
            End::TimedOut => return Ok(Outcome::TimedOut(test.name.clone())),
        }
    }
    Ok(Outcome::Missed(reaching.len()))
}

/// Tries all `mutants`, `jobs` at the same time. Calls `done` with each outcome.
///
/// # Errors
/// As [`try_mutant`].
pub fn try_all<'m>(
    mutants: &[&'m Mutant],
    tests: &[Test<'_>],
    jobs: usize,
    done: impl Fn(&'m Mutant, Outcome) + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            done(mutant, try_mutant(mutant, tests, false)?);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

//! Simulates a thousand volumes with a standby each: the load of the polls on the storage, and how
//! long takeovers take. The standbys decide with the real [`Watch`](parext4_standby::Watch); time
//! is simulated. docs/network.md contains the tables.

mod storage;
mod table;
mod volume;

use std::time::Duration;

use testkit::rng::Rng;

use storage::Storage;
use table::Table;
use volume::{Outcome, Volume};

/// Number of volumes, each with an owner and a standby.
const VOLUMES: u64 = 1000;
/// Number of owners that a rack has.
const RACK: u64 = 100;
/// When the failure happens.
const FAILURE: Duration = Duration::from_mins(1);
/// End of the simulation.
const END: Duration = Duration::from_mins(3);

/// A seed for each row, so that rows do not depend on each other.
fn simulate(seed: u64, poll: u64, storage: Storage, volume: impl Fn(u64) -> Volume) -> Vec<Outcome> {
    let simulate_one = |number| {
        let mut rng = Rng::new(seed, number);
        volume(number).simulate(Duration::from_secs(poll), storage, &mut rng)
    };
    (0..VOLUMES).map(simulate_one).collect()
}

/// A rack with [`RACK`] owners loses its power.
fn rack_failure() -> String {
    let mut table = Table::new(&[
        "poll every",
        "polls per second",
        "busiest second",
        "first takeover",
        "median",
        "99 %",
        "last",
    ]);
    for poll in [1, 2, 5, 10] {
        let outcomes = simulate(poll, poll, Storage::default(), |number| Volume {
            killed: (number < RACK).then_some(FAILURE),
            ..Volume::default()
        });
        let mut times: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.takeover).collect();
        assert_eq!(times.len() as u64, RACK, "every volume of the rack, and no other, is taken over");
        times.sort();
        let at =
            |quantile: f64| table::seconds(times[((times.len() - 1) as f64 * quantile) as usize] - FAILURE);
        let (mean, busiest) = polls_per_second(&outcomes);
        table.row(&[
            format!("{poll} s"),
            mean.to_string(),
            busiest.to_string(),
            at(0.0),
            at(0.5),
            at(0.99),
            at(1.0),
        ]);
        if poll == parext4_standby::POLL.as_secs() {
            assert!(times[times.len() - 1] - FAILURE < Duration::from_secs(30));
        }
    }
    table.to_string()
}

/// Failures of something other than an owner.
fn no_takeover() -> String {
    let mut table = Table::new(&["what happens to all 1000 volumes for a time", "volumes taken over"]);
    let mut row = |what: &str, storage: Storage, volume: Volume| {
        let outcomes = simulate(7, parext4_standby::POLL.as_secs(), storage, |_| volume);
        let taken = outcomes.iter().filter(|outcome| outcome.takeover.is_some()).count();
        table.row(&[what.to_owned(), taken.to_string()]);
        taken
    };
    let outage = |seconds| Storage { outage: Some((FAILURE, FAILURE + Duration::from_secs(seconds))) };
    let healthy = Volume::default;
    let mut taken = 0;
    for seconds in [10, 30, 60] {
        taken += row(&format!("the storage does not answer for {seconds} s"), outage(seconds), healthy());
    }
    let stopped = Volume { standby_stops: Some((FAILURE, Duration::from_mins(1))), ..healthy() };
    taken += row("the standbys are stopped for 60 s", Storage::default(), stopped);
    let late = |seconds| Volume { owner_stops: Some((FAILURE, Duration::from_secs(seconds))), ..healthy() };
    taken += row("the owners are stopped for 15 s", Storage::default(), late(15));
    assert_eq!(taken, 0);
    let all = row("the owners are stopped for 30 s", Storage::default(), late(30));
    assert_eq!(all as u64, VOLUMES);
    table.to_string()
}

/// Returns the mean and the largest number of polls in one second of the time before the failure.
fn polls_per_second(outcomes: &[Outcome]) -> (usize, usize) {
    let seconds = FAILURE.as_secs() as usize;
    let mut polls = vec![0; seconds];
    for poll in outcomes.iter().flat_map(|outcome| &outcome.polls).filter(|poll| **poll < FAILURE) {
        polls[poll.as_secs() as usize] += 1;
    }
    (polls.iter().sum::<usize>() / seconds, polls.into_iter().max().unwrap_or_default())
}

#[test]
fn the_tables_of_the_document_are_up_to_date() {
    let tables = [rack_failure(), no_takeover()];
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/network.md");
    let document = std::fs::read_to_string(document).unwrap();
    for table in tables {
        assert!(document.contains(&table), "docs/network.md lacks this table:\n{table}");
    }
}

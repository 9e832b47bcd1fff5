//! A seed gives the same run each time, and runs notice planted faults.
#![cfg(shuttle)]

use parext4::fault::{Fault, plant};
use simulator::run::run;

#[test]
fn a_seed_gives_the_same_run() {
    for seed in 0..8 {
        let first = run(seed);
        // The hash maps of the standard library have other keys in each thread.
        let again = std::thread::spawn(move || run(seed)).join().expect("it passed before");
        assert_eq!(first, again, "seed {seed}");
    }
}

/// The most runs until a fault must be noticed.
const RUNS: u64 = 100;

/// Returns true if a run notices a fault.
fn is_noticed(fault: Fault) -> bool {
    let fails = |seed: u64| {
        let faulty = move || {
            plant(Some(fault));
            run(seed)
        };
        // In a thread of its own, because a failed run leaves the model checker's state of the
        // thread as it is.
        std::thread::spawn(faulty).join().is_err()
    };
    (0..RUNS).any(fails)
}

#[test]
fn planted_faults_are_noticed() {
    let faults = [
        Fault::DataUnflushed,
        Fault::CommitUnflushed,
        Fault::TailBeforeHome,
        Fault::EmptyLogUnrecorded,
        Fault::ReplayUnflushed,
    ];
    for fault in faults {
        assert!(is_noticed(fault), "no run notices {fault:?}");
    }
}

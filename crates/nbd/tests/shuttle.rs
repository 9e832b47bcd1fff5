//! Models of the hand-over between the threads that wait for one connection. The scheduler reports
//! a thread that nothing wakes as a deadlock.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p parext4-nbd --release --test shuttle`.
#![cfg(shuttle)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parext4_nbd::models::{Caller, Connection, Fault, plant};
use shuttle::thread;

const ITERATIONS: usize = 3_000;
const PCT_DEPTH: usize = 3;
const CALLERS: u32 = 3;
/// Requests of each caller, one after the other.
const ROUNDS: u32 = 2;

fn check(model: fn()) {
    shuttle::check_random(model, ITERATIONS);
    shuttle::check_pct(model, ITERATIONS, PCT_DEPTH);
}

/// Checks that each defect makes the model fail.
fn check_faults(model: fn(), faults: &[Fault]) {
    for &fault in faults {
        plant(Some(fault));
        let noticed = catch_unwind(AssertUnwindSafe(|| check(model)));
        plant(None);
        assert!(noticed.is_err(), "{fault:?} was not noticed");
    }
}

#[test]
fn every_fault_has_a_model() {
    let models = include_str!("shuttle.rs");
    for fault in Fault::ALL {
        assert!(models.contains(&format!("Fault::{fault:?}")), "{fault:?} is missing");
    }
}

/// Threads wait for their own answers, which a server sends in another order.
fn each_thread_gets_its_answers() {
    let connection = Arc::new(Connection::default());
    let (sender, requests) = shuttle::sync::mpsc::channel::<(Caller, u32)>();
    let server = {
        let connection = Arc::clone(&connection);
        thread::spawn(move || {
            let mut held: Vec<(Caller, u32)> = Vec::new();
            while let Ok(request) = requests.recv() {
                held.push(request);
                // The first request of each pair waits for the second, if one is under way.
                held.extend(requests.try_recv());
                held.drain(..).rev().for_each(|(caller, request)| connection.answer(&caller, request));
            }
        })
    };
    let callers: Vec<_> = (0..CALLERS)
        .map(|nth| {
            let (connection, sender) = (Arc::clone(&connection), sender.clone());
            thread::spawn(move || {
                let caller = Caller::default();
                for round in 0..ROUNDS {
                    let request = nth * ROUNDS + round;
                    sender.send((caller.clone(), request)).unwrap();
                    let mut answers = Vec::new();
                    while answers.is_empty() {
                        answers = connection.receive(&caller, true).unwrap();
                    }
                    assert_eq!(answers, [request]);
                }
            })
        })
        .collect();
    drop(sender);
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    server.join().unwrap();
}

#[test]
fn each_waiting_thread_gets_its_answers() {
    check(each_thread_gets_its_answers);
    let faults = [
        Fault::RoleDropped,
        Fault::NextLeaderAsleep,
        Fault::WaiterForgotten,
        Fault::WaiterStays,
        Fault::NewsUnchecked,
        Fault::LeaderStays,
    ];
    check_faults(each_thread_gets_its_answers, &faults);
}

/// The answer to one thread arrives only when the other thread has its answer, whichever of them
/// leads.
fn a_thread_gets_its_answer_while_another_leads() {
    let connection = Arc::new(Connection::default());
    let [one, other] = [Caller::default(), Caller::default()];
    let first = {
        let (connection, one, other) = (Arc::clone(&connection), one.clone(), other.clone());
        thread::spawn(move || {
            assert_eq!(connection.receive(&one, true).unwrap(), [1]);
            connection.answer(&other, 2);
        })
    };
    let second = {
        let connection = Arc::clone(&connection);
        thread::spawn(move || assert_eq!(connection.receive(&other, true).unwrap(), [2]))
    };
    connection.answer(&one, 1);
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn a_leader_wakes_the_owner_of_an_answer() {
    check(a_thread_gets_its_answer_while_another_leads);
    let faults = [Fault::WokenEarly, Fault::OwnerAsleep, Fault::NewsUnchecked];
    check_faults(a_thread_gets_its_answer_while_another_leads, &faults);
}

/// A queue receives without waiting and is woken, while another thread waits for its answer.
fn a_queue_is_woken() {
    let connection = Arc::new(Connection::default());
    let (queue, caller) = (Caller::default(), Caller::default());
    let waker = queue.clone();
    let waiting = {
        let (connection, caller) = (Arc::clone(&connection), caller.clone());
        thread::spawn(move || assert_eq!(connection.receive(&caller, true).unwrap(), [7]))
    };
    let queueing = {
        let connection = Arc::clone(&connection);
        thread::spawn(move || {
            let mut answers = connection.receive(&queue, false).unwrap();
            while answers.is_empty() && !queue.take_wake() {
                answers = connection.receive(&queue, true).unwrap();
            }
        })
    };
    waker.wake();
    connection.answer(&caller, 7);
    waiting.join().unwrap();
    queueing.join().unwrap();
}

#[test]
fn a_woken_queue_leaves_and_another_thread_leads() {
    check(a_queue_is_woken);
    check_faults(a_queue_is_woken, &[Fault::RoleDropped, Fault::NextLeaderAsleep, Fault::NewsUnchecked]);
}

/// The connection is lost while threads wait.
fn every_thread_learns_of_the_loss() {
    let connection = Arc::new(Connection::default());
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let connection = Arc::clone(&connection);
            thread::spawn(move || assert!(connection.receive(&Caller::default(), true).is_err()))
        })
        .collect();
    connection.close();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
}

#[test]
fn every_waiting_thread_learns_that_the_connection_is_lost() {
    check(every_thread_learns_of_the_loss);
    check_faults(every_thread_learns_of_the_loss, &[Fault::RoleDropped]);
}

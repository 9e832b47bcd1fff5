//! Flushes at the same time.

use super::*;
use std::thread::{scope, sleep};
use std::time::Duration;
use testkit::nbd::{Kind, Reply, Seen};

fn flushes(log: &[Seen]) -> usize {
    log.iter().filter(|seen| seen.kind == Kind::Flush).count()
}

/// Makes the server treat the first flush by `reply`, and returns once it has it.
fn begin(server: &FakeServer, reply: Reply, flush: impl FnOnce()) {
    let (sender, seen) = std::sync::mpsc::channel();
    let mut reply = Some(reply);
    server.rule(move |request| match request.kind {
        Kind::Flush => reply.take().map_or(Reply::Answer, |reply| {
            let _ = sender.send(());
            reply
        }),
        _ => Reply::Answer,
    });
    flush();
    seen.recv().unwrap();
}

/// Linux reports to one of the two that writes are lost.
#[test]
fn a_flush_does_not_succeed_beside_one_that_is_refused() {
    let (server, device) = served("");
    write(&*device, 0, 1, 4096).unwrap();
    scope(|threads| {
        let mut first = None;
        begin(&server, Reply::LateRefusal(Duration::from_millis(300), 5), || {
            first = Some(threads.spawn(|| device.flush()));
        });
        assert_eq!(device.flush().unwrap_err().raw_os_error(), Some(5));
        assert_eq!(first.unwrap().join().unwrap().unwrap_err().raw_os_error(), Some(5));
    });
    assert_eq!(flushes(&server.take_log()), 1);
}

#[test]
fn flushes_that_wait_share_one() {
    let (server, device) = served("");
    scope(|threads| {
        let call = || threads.spawn(|| device.flush().unwrap());
        // Time for all threads to arrive.
        begin(&server, Reply::Late(Duration::from_secs(2)), || drop(call()));
        write(&*device, 0, 1, 4096).unwrap();
        (0..8).for_each(|_| drop(call()));
        sleep(Duration::from_millis(100));
    });
    assert_eq!(flushes(&server.take_log()), 2);
    server.disk(|disk| assert_eq!(disk.durable()[..4096], [1; 4096]));
}

#[test]
fn a_flush_does_not_depend_on_the_owner_of_another() {
    let (server, device) = served("");
    let mut idle = open_queue(&device, 1);
    begin(&server, Reply::Late(Duration::from_millis(100)), || {
        idle.submit(Request { token: 1, op: Op::Flush });
        idle.harvest(false, &mut Vec::new()).unwrap();
    });
    device.flush().unwrap();
    assert!(finish(&mut *idle)[0].result.is_ok());
}

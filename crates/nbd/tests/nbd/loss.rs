//! Lost connections: what is sent again, in which order, and how the client gives up.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use testkit::nbd::{Kind, Reply, Seen};

/// Returns kind, offset and first byte of the requests of the newest run.
fn last_run(log: &[Seen]) -> Vec<(Kind, u64, u8)> {
    let run = log.last().unwrap().run;
    log.iter().filter(|seen| seen.run == run).map(|seen| (seen.kind, seen.offset, seen.byte)).collect()
}

#[test]
fn a_restarted_server_gets_answered_writes_that_no_flush_covers() {
    let (server, device) = served("");
    write(&*device, 0, 1, 4096).unwrap();
    device.flush().unwrap();
    write(&*device, 4096, 2, 8192).unwrap();
    write(&*device, 8192, 3, 4096).unwrap();
    server.restart();
    // The cache of the server is lost.
    server.disk(|disk| assert_eq!(disk.read(4096, 8192).unwrap(), vec![0; 8192]));
    assert_eq!(read(&*device, 8192, 4096).unwrap(), vec![3; 4096]);
    assert_eq!(read(&*device, 4096, 4096).unwrap(), vec![2; 4096]);
    let log = server.take_log();
    let writes: Vec<_> = last_run(&log).into_iter().filter(|seen| seen.0 == Kind::Write).collect();
    // The covered write is not sent again, and of the overwritten one only the part that is left.
    assert_eq!(writes, [(Kind::Write, 4096, 2), (Kind::Write, 8192, 3)]);
    device.flush().unwrap();
    server.restart();
    assert_eq!(read(&*device, 4096, 4096).unwrap(), vec![2; 4096]);
    assert_eq!(last_run(&server.take_log()), [(Kind::Read, 4096, 0)]);
    server.disk(|disk| assert_eq!(disk.durable()[8192..12288], vec![3; 4096]));
}

/// Without flushes while the retained writes are sent, each connection would be lost before all of
/// them are.
#[test]
fn connections_that_are_lost_early_make_progress() {
    const LEN: usize = 1 << 20;
    let server = FakeServer::start(24 * LEN as u64, Offer::default());
    let device = open_url(&server.url("&reconnect=60")).unwrap();
    for nth in 0..24_u8 {
        write(&*device, u64::from(nth) * LEN as u64, nth + 1, LEN).unwrap();
    }
    let mut served = BTreeMap::new();
    server.rule(move |seen| {
        let writes: &mut u32 = served.entry(seen.connection).or_default();
        *writes += u32::from(seen.kind == Kind::Write);
        if seen.run > 0 && *writes > 7 { Reply::Close } else { Reply::Answer }
    });
    server.restart();
    for nth in 0..24_u8 {
        let offset = u64::from(nth) * LEN as u64;
        assert_eq!(read(&*device, offset, LEN).unwrap(), vec![nth + 1; LEN]);
    }
    device.flush().unwrap();
}

#[test]
fn retained_writes_precede_all_other_requests() {
    let (server, device) = served("&connections=3");
    for nth in 0..40_u8 {
        write(&*device, u64::from(nth) * 4096, nth + 1, 4096).unwrap();
    }
    server.take_log();
    // Answers of the new run come late, so that a request that did not wait for them would be seen
    // between.
    let mut first = true;
    server.rule(move |seen| {
        if seen.run == 0 && seen.kind == Kind::Write && std::mem::take(&mut first) {
            return Reply::Restart;
        }
        if seen.run == 1 && seen.offset < 40 * 4096 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Reply::Answer
    });
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let device = &device;
            scope.spawn(move || write(&**device, (100 + thread) * 4096, 99, 4096).unwrap());
        }
    });
    let log = server.take_log();
    let run: Vec<_> = log.iter().filter(|seen| seen.run == 1).collect();
    let replayed: BTreeSet<u64> = run[..40].iter().map(|seen| seen.offset / 4096).collect();
    assert_eq!(replayed, (0..40).collect());
    assert_eq!(run[..40].iter().map(|seen| seen.connection).collect::<BTreeSet<_>>().len(), 1);
    assert!(run[40..].iter().all(|seen| seen.byte == 99));
    for nth in 0..40_u8 {
        assert_eq!(read(&*device, u64::from(nth) * 4096, 4096).unwrap(), vec![nth + 1; 4096]);
    }
}

#[test]
fn an_older_write_does_not_replace_a_newer_one() {
    let (server, device) = served("");
    write(&*device, 0, 1, 16384).unwrap();
    write(&*device, 4096, 2, 4096).unwrap();
    // A newer write is without an answer when the server restarts.
    let mut first = true;
    server.rule(move |seen| match seen.byte {
        3 if std::mem::take(&mut first) => Reply::Restart,
        _ => Reply::Answer,
    });
    write(&*device, 6144, 3, 4096).unwrap();
    let expected = [vec![1; 4096], vec![2; 2048], vec![3; 4096], vec![1; 6144]].concat();
    assert_eq!(read(&*device, 0, 16384).unwrap(), expected);
    server.rule(|_| Reply::Answer);
    server.restart();
    assert_eq!(read(&*device, 0, 16384).unwrap(), expected);
    device.flush().unwrap();
    server.disk(|disk| assert_eq!(disk.durable()[..16384], expected));
}

#[test]
fn a_flush_without_an_answer_covers_nothing() {
    let (server, device) = served("");
    write(&*device, 0, 1, 4096).unwrap();
    let mut flushes = 0;
    server.rule(move |seen| match seen.kind {
        Kind::Flush => {
            flushes += 1;
            if flushes == 1 { Reply::Restart } else { Reply::Answer }
        }
        _ => Reply::Answer,
    });
    device.flush().unwrap();
    let log = last_run(&server.take_log());
    assert_eq!(log, [(Kind::Write, 0, 1), (Kind::Flush, 0, 0)]);
    server.disk(|disk| assert_eq!(disk.durable()[..4096], vec![1; 4096]));
}

/// Opens two queues of depth 1 that use different connections.
fn two_queues(server: &FakeServer, device: &Arc<dyn Device>) -> [Box<dyn Queue>; 2] {
    let open = || {
        let mut queue = open_queue(device, 1);
        queue.submit(read_request(0, 0, 512));
        finish(&mut *queue);
        (queue, server.take_log().last().unwrap().connection)
    };
    let (first, connection) = open();
    let mut second = open();
    while second.1 == connection {
        second = open();
    }
    [first, second.0]
}

#[test]
fn a_flush_does_not_cover_a_write_that_is_answered_before_it_but_after_it_was_sent() {
    let (server, device) = served("&connections=2");
    let [mut one, mut other] = two_queues(&server, &device);
    write(&*device, 0, 1, 4096).unwrap();
    server.rule(|seen| match seen.kind {
        Kind::Flush => Reply::Late(Duration::from_millis(500)),
        _ => Reply::Answer,
    });
    one.submit(Request { token: 1, op: Op::Flush });
    one.harvest(false, &mut Vec::new()).unwrap();
    // The server has flushed its disk and holds its answer back.
    assert!(testkit::poll::until(|| server.disk(|disk| disk.durable()[0] == 1)));
    other.submit(write_request(2, 4096, 2, 4096));
    assert!(finish(&mut *other).pop().unwrap().result.is_ok());
    assert!(finish(&mut *one).pop().unwrap().result.is_ok());
    server.restart();
    assert_eq!(read(&*device, 4096, 4096).unwrap(), vec![2; 4096]);
    assert_eq!(last_run(&server.take_log()), [(Kind::Write, 4096, 2), (Kind::Read, 4096, 0)]);
}

#[test]
fn the_client_waits_for_a_server_that_is_down() {
    let (server, device) = served("&reconnect=20");
    write(&*device, 0, 1, 4096).unwrap();
    server.down();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&*device, 0, 4096).unwrap());
        std::thread::sleep(Duration::from_millis(400));
        assert!(!reader.is_finished());
        // A queue can be opened and used meanwhile, and a wake ends its wait.
        let mut queue = open_queue(&device, 4);
        queue.submit(write_request(1, 4096, 2, 4096));
        queue.waker().wake();
        queue.harvest(true, &mut Vec::new()).unwrap();
        queue.harvest(false, &mut Vec::new()).unwrap();
        server.up();
        finish(&mut *queue).pop().unwrap().result.unwrap();
        assert_eq!(reader.join().unwrap(), vec![1; 4096]);
    });
    assert_eq!(read(&*device, 4096, 4096).unwrap(), vec![2; 4096]);
}

#[test]
fn the_client_gives_up_and_then_fails_all_requests() {
    let (server, device) = served("&reconnect=1");
    write(&*device, 0, 1, 4096).unwrap();
    let mut queue = open_queue(&device, 4);
    server.rule(|_| Reply::OwnerEvidence);
    queue.submit(read_request(1, 0, 4096));
    queue.harvest(false, &mut Vec::new()).unwrap();
    server.down();
    let start = Instant::now();
    let error = read(&*device, 0, 4096).unwrap_err();
    assert!((1..10).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "an owner stops with its device");
    assert!(text.contains("stopped: no connection for 1 s") && text.contains("4096 bytes"), "{text}");
    assert!(finish(&mut *queue).pop().unwrap().result.is_err());
    // The server is back, but a write may be lost, so the device stays stopped.
    server.up();
    server.rule(|_| Reply::Answer);
    for result in [write(&*device, 0, 1, 512), device.flush(), device.discard(0, 512)] {
        assert!(result.unwrap_err().to_string().contains("stopped"));
    }
    queue.submit(write_request(2, 0, 1, 512));
    queue.submit(Request { token: 3, op: Op::Flush });
    assert!(finish(&mut *queue).into_iter().all(|done| done.result.is_err()));
}

#[test]
fn a_request_without_an_answer_loses_the_connection() {
    let (server, device) = served("&timeout=1&reconnect=30");
    let mut is_first = true;
    server.rule(move |seen| match seen.kind {
        Kind::Read if std::mem::take(&mut is_first) => Reply::OwnerEvidence,
        _ => Reply::Answer,
    });
    write(&*device, 0, 1, 512).unwrap();
    assert_eq!(read(&*device, 0, 512).unwrap(), vec![1; 512]);
}

#[test]
fn a_server_that_accepts_and_never_answers_does_not_hold_requests_for_ever() {
    let (server, device) = served("&timeout=1&reconnect=2");
    server.rule(|_| Reply::OwnerEvidence);
    let start = Instant::now();
    let error = read(&*device, 0, 512).unwrap_err();
    assert!(error.to_string().contains("requests without an answer"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_server_that_closes_every_connection_does_not_hold_requests_for_ever() {
    let (server, device) = served("&reconnect=1");
    server.rule(|_| Reply::Close);
    assert!(read(&*device, 0, 512).unwrap_err().to_string().contains("stopped"));
}

#[test]
fn an_export_that_has_changed_stops_the_device() {
    let (server, device) = served("&reconnect=30");
    server.offer(Offer { sizes: Some((4096, 4096, 1 << 20)), ..Offer::default() });
    server.restart();
    let error = read(&*device, 0, 512).unwrap_err();
    assert!(error.to_string().contains("its minimum block size was 512 and is 4096"), "{error}");
}

#[test]
fn a_server_that_refuses_a_retained_write_stops_the_device() {
    let (server, device) = served("&reconnect=30");
    write(&*device, 0, 1, 512).unwrap();
    server.rule(|seen| if seen.kind == Kind::Write { Reply::Refuse(28, "", None) } else { Reply::Answer });
    server.restart();
    let error = read(&*device, 0, 512).unwrap_err();
    assert!(error.to_string().contains("refused to repeat a write"), "{error}");
}

#[test]
fn a_server_that_shuts_down_is_waited_for() {
    let (server, device) = served("");
    server.rule(|seen| if seen.run == 0 { Reply::Refuse(108, "bye", None) } else { Reply::Answer });
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&*device, 0, 1, 512));
        std::thread::sleep(Duration::from_millis(100));
        server.restart();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(read(&*device, 0, 512).unwrap(), vec![1; 512]);
}

#[test]
fn a_dropped_device_ends_its_connections() {
    let (server, device) = served("");
    write(&*device, 0, 1, 512).unwrap();
    drop(device);
    let device = open_url(&server.url("&reconnect=1")).unwrap();
    server.down();
    assert_eq!(read(&*device, 0, 512).unwrap_err().kind(), ErrorKind::TimedOut);
}

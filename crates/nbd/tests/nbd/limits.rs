//! Servers with limits, and servers that lack a request: the client's requests to them.

use super::*;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use testkit::nbd::{Kind, Reply, flags};

#[test]
fn requests_are_split_at_the_largest_block() {
    let sizes = Some((4096, 65536 * 2, 8192));
    let (server, device) = served_with(Offer { sizes, ..Offer::default() }, "");
    assert_eq!(device.sector_size(), 4096);
    assert_eq!(device.object_size(), std::num::NonZeroU64::new(1 << 17));
    assert_eq!(write(&*device, 512, 1, 4096).unwrap_err().kind(), ErrorKind::InvalidInput);
    let bytes: Vec<u8> = (0..36864).map(|at| (at % 251) as u8).collect();
    let (head, tail) = bytes.split_at(5000);
    device.write_at(4096, &[IoSlice::new(head), IoSlice::new(tail)]).unwrap();
    assert_eq!(read(&*device, 4096, bytes.len()).unwrap(), bytes);
    let mut queue = open_queue(&device, 2);
    queue.submit(read_request(1, 4096, bytes.len()));
    let done = finish(&mut *queue).pop().unwrap();
    let Op::Read { buf, .. } = &done.op else { panic!() };
    assert!(done.result.is_ok() && buf[..] == bytes);
    let log = server.take_log();
    assert_eq!(log.len(), 15);
    assert!(log.iter().all(|seen| seen.len <= 8192 && seen.offset % 4096 == 0));
}

#[test]
fn long_zeros_are_not_sent() {
    let (server, device) = served("");
    write(&*device, 0, 5, 65536).unwrap();
    write(&*device, 0, 0, 32768).unwrap();
    write(&*device, 32768, 0, 512).unwrap();
    let log = server.take_log();
    let kinds: Vec<_> = log.iter().map(|seen| (seen.kind, seen.flags, seen.len)).collect();
    // The range stays allocated.
    assert_eq!(kinds[1..], [(Kind::WriteZeroes, 2, 32768), (Kind::Write, 0, 512)]);
    let expected: Vec<u8> = [vec![0; 32768 + 512], vec![5; 32768 - 512]].concat();
    assert_eq!(read(&*device, 0, 65536).unwrap(), expected);
    // Zeros are retained, too.
    server.restart();
    assert_eq!(read(&*device, 0, 65536).unwrap(), expected);
}

#[test]
fn a_discard_is_a_trim_where_there_is_one() {
    let (server, device) = served("");
    device.discard(4096, 8192).unwrap();
    let log = server.take_log();
    assert_eq!((log[0].kind, log[0].offset, log[0].len), (Kind::Trim, 4096, 8192));
    server.rule(|_| Reply::Refuse(95, "", None));
    device.discard(4096, 8192).unwrap();
    server.rule(|_| Reply::Refuse(5, "", None));
    assert_eq!(device.discard(4096, 8192).unwrap_err().raw_os_error(), Some(5));
    let offer = Offer { flags: flags::HAS_FLAGS, ..Offer::default() };
    let (server, device) = served_with(offer, "");
    device.discard(4096, 8192).unwrap();
    assert_eq!(server.take_log(), []);
}

#[test]
fn a_server_without_flush_gets_fua_if_it_has_that() {
    let offer = Offer { flags: flags::HAS_FLAGS | flags::SEND_FUA, ..Offer::default() };
    let (server, device) = served_with(offer, "");
    write(&*device, 0, 1, 4096).unwrap();
    device.flush().unwrap();
    let log = server.take_log();
    assert_eq!(log.len(), 1, "no flush is sent");
    assert_eq!((log[0].kind, log[0].flags), (Kind::Write, 1));
    server.disk(|disk| assert_eq!(disk.durable()[..4096], vec![1; 4096]));
}

#[test]
fn connections_are_coherent_or_one() {
    for (flags, connections) in [(flags::HAS_FLAGS | flags::CAN_MULTI_CONN, 3), (flags::HAS_FLAGS, 1)] {
        let (server, device) = served_with(Offer { flags, ..Offer::default() }, "&connections=3");
        let (mut used, mut queues) = (BTreeSet::new(), Vec::new());
        // The queues of other tests take connections from the same counter, so six may miss one of
        // three.
        while queues.len() < 6 || used.len() < connections && queues.len() < 100 {
            let mut queue = open_queue(&device, 1);
            queue.submit(read_request(1, 0, 512));
            finish(&mut *queue);
            used.extend(server.take_log().iter().map(|seen| seen.connection));
            queues.push(queue);
        }
        assert_eq!(used.len(), connections);
    }
}

#[test]
fn writes_wait_when_the_client_retains_too_much() {
    let (server, device) = served("&retain=65536&connections=2");
    let mut queue = open_queue(&device, 8);
    for token in 0..64 {
        queue.submit(write_request(token, token * 8192, token as u8 + 1, 8192));
    }
    for token in 64..80 {
        write(&*device, token * 8192, token as u8 + 1, 8192).unwrap();
    }
    finish(&mut *queue).into_iter().for_each(|done| done.result.unwrap());
    let log = server.take_log();
    let mut unflushed = 0;
    let mut largest = 0;
    for seen in &log {
        unflushed = if seen.kind == Kind::Flush { 0 } else { unflushed + u64::from(seen.len) };
        largest = largest.max(unflushed);
    }
    // The writes in flight come on top of the limit: eight of the queue, one of the thread.
    assert!(largest <= 65536 + 9 * 8192, "{largest} bytes without a flush");
    server.restart();
    for token in 0..80 {
        assert_eq!(read(&*device, token * 8192, 8192).unwrap(), vec![token as u8 + 1; 8192]);
    }
}

#[test]
fn a_refused_flush_fails_all_later_ones() {
    let (server, device) = served("&retain=8192");
    write(&*device, 0, 1, 4096).unwrap();
    server.rule(|seen| match seen.kind {
        Kind::Flush => Reply::Refuse(28, "no space", None),
        _ => Reply::Answer,
    });
    let error = device.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().contains("no space"), "{error}");
    server.rule(|_| Reply::Answer);
    assert_eq!(device.flush().unwrap_err().kind(), ErrorKind::StorageFull);
    let mut queue = open_queue(&device, 1);
    queue.submit(Request { token: 1, op: Op::Flush });
    assert_eq!(finish(&mut *queue)[0].result.as_ref().unwrap_err().kind(), ErrorKind::StorageFull);
}

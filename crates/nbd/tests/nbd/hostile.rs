//! Answers against the protocol. Each counts as a lost connection, after which the server behaves.

use super::*;
use std::io::ErrorKind;
use testkit::nbd::{Kind, Reply};

fn chunk(flags: u16, kind: u16, cookie: u64, len: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(content);
    bytes
}

fn simple(error: u32, cookie: u64) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

/// Returns a chunk with the bytes of a read.
fn data(flags: u16, cookie: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
    chunk(flags, 1, cookie, bytes.len() as u32 + 8, &[&offset.to_be_bytes(), bytes].concat())
}

fn hole(flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    chunk(flags, 2, cookie, 12, &[&offset.to_be_bytes()[..], &len.to_be_bytes()].concat())
}

/// Reads 4096 bytes at 8192 from a server whose first answer is `bytes` of the request's cookie.
/// The read must succeed in the second run.
fn survives(structured: bool, name: &str, bytes: impl Fn(u64) -> Vec<u8> + Send + 'static) {
    let (server, device) = served_with(Offer { structured, ..Offer::default() }, "");
    write(&*device, 8192, 7, 4096).unwrap();
    device.flush().unwrap();
    let mut is_first = true;
    server.rule(move |seen| {
        if seen.kind == Kind::Read && std::mem::take(&mut is_first) {
            return Reply::BytesAndClose(bytes(seen.cookie));
        }
        Reply::Answer
    });
    assert_eq!(read(&*device, 8192, 4096).unwrap(), vec![7; 4096], "{name}");
    let reads = server.take_log().iter().filter(|seen| seen.kind == Kind::Read).count();
    assert_eq!(reads, 2, "{name}: was not sent again");
}

#[test]
fn simple_replies_against_the_protocol() {
    survives(false, "nothing", |_| Vec::new());
    survives(false, "wrong magic", |_| vec![0xff; 16]);
    survives(false, "unknown cookie", |cookie| simple(0, cookie + 1));
    survives(false, "old cookie", |cookie| simple(0, cookie ^ 1 << 32));
    survives(false, "half a reply", |cookie| simple(0, cookie)[..9].to_vec());
    survives(false, "end within the bytes", |cookie| [simple(0, cookie), vec![1; 100]].concat());
    survives(false, "a chunk that was not agreed", |cookie| data(1, cookie, 8192, &[1; 4096]));
}

#[test]
fn chunks_against_the_protocol() {
    let s = |name, bytes: fn(u64) -> Vec<u8>| survives(true, name, bytes);
    s("a simple reply to a read", |cookie| [simple(0, cookie), vec![1; 4096]].concat());
    s("an unknown type", |cookie| chunk(1, 77, cookie, 0, &[]));
    s("a huge length", |cookie| chunk(1, 1, cookie, u32::MAX, &8192_u64.to_be_bytes()));
    s("a huge error", |cookie| chunk(1, 1 << 15 | 1, cookie, 1 << 20, &[0; 64]));
    s("a short error", |cookie| chunk(1, 1 << 15 | 1, cookie, 3, &[0; 3]));
    s("an error without a number", |cookie| chunk(1, 1 << 15 | 1, cookie, 6, &[0; 6]));
    s("no bytes", |cookie| chunk(1, 0, cookie, 0, &[]));
    s("an end that does not end", |cookie| chunk(0, 0, cookie, 0, &[]));
    s("less than all bytes", |cookie| data(1, cookie, 8192, &[1; 512]));
    s("bytes before the range", |cookie| data(1, cookie, 8000, &[1; 512]));
    s("bytes past the range", |cookie| data(1, cookie, 8192 + 4000, &[1; 512]));
    s("an offset that overflows", |cookie| data(1, cookie, u64::MAX, &[1; 512]));
    s("a byte twice", |cookie| [data(0, cookie, 8192, &[1; 4096]), data(1, cookie, 8192, &[1; 1])].concat());
    s("half of the bytes twice", |cookie| {
        [data(0, cookie, 8192, &[1; 2048]), data(1, cookie, 8192, &[1; 2048])].concat()
    });
    s("bytes that overlap", |cookie| {
        [data(0, cookie, 8192 + 1024, &[1; 2048]), hole(1, cookie, 8192, 2048)].concat()
    });
    s("an empty hole", |cookie| [hole(0, cookie, 8192, 0), hole(1, cookie, 8192, 4096)].concat());
    s("a huge hole", |cookie| hole(1, cookie, 8192, u32::MAX));
    s("a hole past the range", |cookie| hole(1, cookie, 8193, 4096));
    s("a hole of the wrong length", |cookie| chunk(1, 2, cookie, 8, &[0; 8]));
    s("end within the bytes", |cookie| data(1, cookie, 8192, &[1; 4096])[..1000].to_vec());
    s("two answers", |cookie| [data(0, cookie, 8192, &[1; 1024]), vec![0; 64]].concat());
}

#[test]
fn an_answer_twice_does_not_reach_a_later_request() {
    let (server, device) = served_with(Offer { structured: false, ..Offer::default() }, "&connections=1");
    let mut is_first = true;
    server.rule(move |seen| {
        if seen.kind == Kind::Write && std::mem::take(&mut is_first) {
            return Reply::Bytes([simple(0, seen.cookie), simple(0, seen.cookie)].concat());
        }
        Reply::Answer
    });
    // The first write was answered and not performed, so it is lost unless the client sends it
    // again: after the second answer the connection counts as lost.
    write(&*device, 0, 1, 512).unwrap();
    write(&*device, 512, 2, 512).unwrap();
    assert_eq!(read(&*device, 0, 1024).unwrap(), [vec![1; 512], vec![2; 512]].concat());
}

#[test]
fn bytes_for_a_write_are_refused() {
    let (server, device) = served("");
    let mut is_first = true;
    server.rule(move |seen| match seen.kind {
        Kind::Write if std::mem::take(&mut is_first) => {
            Reply::Bytes(data(1, seen.cookie, seen.offset, &[1; 512]))
        }
        _ => Reply::Answer,
    });
    write(&*device, 0, 3, 512).unwrap();
    assert_eq!(read(&*device, 0, 512).unwrap(), vec![3; 512]);
}

#[test]
fn errors_have_the_servers_number_message_and_offset() {
    for structured in [true, false] {
        let (server, device) = served_with(Offer { structured, ..Offer::default() }, "");
        server.rule(|seen| match seen.kind {
            Kind::Read => Reply::Refuse(5, "bad\nsector", Some(seen.offset + 512)),
            Kind::Write => Reply::Refuse(28, "", None),
            _ => Reply::Refuse(4711, "", None),
        });
        let error = read(&*device, 4096, 1024).unwrap_err();
        if structured {
            let text = error.to_string();
            assert!(text.contains("badsector at offset 4608 of a request at 4096"), "{text}");
        } else {
            assert_eq!(error.raw_os_error(), Some(5));
        }
        assert_eq!(write(&*device, 0, 1, 512).unwrap_err().kind(), ErrorKind::StorageFull);
        // Unknown numbers are EINVAL, as the protocol asks.
        assert_eq!(device.flush().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn an_error_among_chunks_fails_the_read() {
    let (server, device) = served("");
    server.rule(|seen| {
        let error = chunk(0, 1 << 15 | 1, seen.cookie, 8, &[0, 0, 0, 5, 0, 2, b'n', b'o']);
        Reply::Bytes([data(0, seen.cookie, 0, &[1; 512]), error, chunk(1, 0, seen.cookie, 0, &[])].concat())
    });
    let error = read(&*device, 0, 1024).unwrap_err();
    assert!(error.to_string().contains("no"), "{error}");
    server.rule(|_| Reply::Answer);
    read(&*device, 0, 1024).unwrap();
}

#[test]
fn an_answer_before_the_request_is_sent_is_refused() {
    let (server, device) = served("&connections=1");
    let mut queue = open_queue(&device, 64);
    // The server answers requests that it has not read: cookies are counted from zero, so they can
    // be guessed.
    let mut is_first = true;
    server.rule(move |seen| {
        if std::mem::take(&mut is_first) {
            std::thread::sleep(std::time::Duration::from_millis(200));
            return Reply::BytesAndClose((0..64).flat_map(|cookie| simple(0, cookie)).collect());
        }
        let _ = seen;
        Reply::Answer
    });
    // More than the socket accepts while the server does not read.
    for token in 0..48 {
        queue.submit(write_request(token, token * 65536, token as u8 + 1, 65536));
    }
    for done in finish(&mut *queue) {
        done.result.unwrap();
    }
    for token in 0..48 {
        assert_eq!(read(&*device, token * 65536, 65536).unwrap(), vec![token as u8 + 1; 65536], "{token}");
    }
}

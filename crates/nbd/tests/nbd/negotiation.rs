//! The negotiation: old servers, refusals, options of the device.

use super::*;
use parext4_device::Sharing;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::time::Instant;
use testkit::nbd::flags;

/// Opens the export of a server that sends `answer` to each client and then closes or, with
/// `stays`, waits.
fn open_scripted(answer: &[u8], stays: bool) -> io::Error {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(answer);
            if !stays {
                let _ = stream.shutdown(Shutdown::Write);
            }
            // Reads what the client sends until it gives up, because a reset would hide the answer.
            let mut bytes = [0; 4096];
            while matches!(stream.read(&mut bytes), Ok(len) if len > 0) {}
        });
        open_url(&format!("nbd+unix:///x?socket={}", socket.display())).unwrap_err()
    })
}

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";

fn reply(option: u32, kind: u32, len: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    [option, kind, len].iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    [&bytes[..], data].concat()
}

fn whole_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    reply(option, kind, data.len() as u32, data)
}

#[test]
fn servers_without_newer_options_are_served() {
    for (fixed, go, structured) in [(true, true, false), (true, false, true), (false, false, false)] {
        let (server, device) = served_with(Offer { fixed, go, structured, ..Offer::default() }, "");
        assert_eq!((device.size(), device.sector_size(), device.sharing()), (SIZE, 512, Sharing::Unfenced));
        write(&*device, 4096, 7, 8192).unwrap();
        assert_eq!(read(&*device, 4096, 8192).unwrap(), vec![7; 8192]);
        device.flush().unwrap();
        server.disk(|disk| assert_eq!(disk.durable()[4096..4096 + 8192], vec![7; 8192]));
    }
}

#[test]
fn what_is_no_server_is_named() {
    for (answer, kind, message) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), ErrorKind::InvalidData, "does not speak NBD"),
        (b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53", ErrorKind::Unsupported, "only the old negotiation"),
        (b"NBDMAGIC", ErrorKind::UnexpectedEof, ""),
        (b"", ErrorKind::UnexpectedEof, ""),
    ] {
        let error = open_scripted(answer, false);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(
            error.to_string().starts_with("nbd+unix:///x?socket=") && error.to_string().contains(message),
            "{error}"
        );
    }
}

#[test]
fn refusals_are_reported_with_the_servers_message() {
    const ERROR: u32 = 1 << 31;
    let no_chunks = whole_reply(8, ERROR | 1, b"");
    for (code, kind, message) in [
        (6, ErrorKind::NotFound, "no such export (try disk1)"),
        (2, ErrorKind::PermissionDenied, "policy forbids it (try disk1)"),
        (5, ErrorKind::Unsupported, "requires TLS: use nbds:// (try disk1)"),
        (99, ErrorKind::Other, "refused the export (try disk1)"),
    ] {
        let refusal = whole_reply(7, ERROR | code, b"try\x07 disk1");
        let error = open_scripted(&[GREETING, &no_chunks, &refusal].concat(), false);
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().ends_with(message), "{error}");
    }
}

#[test]
fn replies_against_the_protocol_are_refused() {
    let ack = whole_reply(8, 1, b"");
    let info = |data: &[u8]| whole_reply(7, 3, data);
    let export = info(&[&[0, 0][..], &SIZE.to_be_bytes(), &[0, 1]].concat());
    let sizes = |numbers: [u32; 3]| info(&[&[0, 3][..], &numbers.map(u32::to_be_bytes).concat()].concat());
    for (replies, message) in [
        (reply(8, 1, u32::MAX, b""), "too long"),
        (whole_reply(3, 1, b""), "an option that was not sent"),
        (whole_reply(8, 2, b""), "unexpected reply"),
        ([&ack[..], &whole_reply(7, 1, b"")].concat(), "no size"),
        ([&ack[..], &info(b"x")].concat(), "short NBD_REP_INFO"),
        ([&ack[..], &info(&[0, 0, 1])].concat(), "wrong length"),
        ([&ack[..], &export.repeat(100)].concat(), "no end of replies"),
        (
            [&ack[..], &export, &sizes([3, 4096, 4096]), &whole_reply(7, 1, b"")].concat(),
            "minimum block size of 3",
        ),
        (
            [&ack[..], &export, &sizes([1, 4096, 5]), &whole_reply(7, 1, b"")].concat(),
            "maximum block size of 5",
        ),
    ] {
        let error = open_scripted(&[GREETING, &replies].concat(), false);
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_server_that_does_not_answer_ends_the_open() {
    let start = Instant::now();
    let error = open_scripted(b"NBDMAGIC", true);
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!((8..30).contains(&start.elapsed().as_secs()));
}

#[test]
fn options_of_the_device_are_honoured() {
    let server = FakeServer::start(SIZE, Offer::default());
    let url = server.url("");
    let part = open_with(&url, &DeviceOptions::new().offset(1 << 20).len(8192 + 100)).unwrap();
    assert_eq!(part.size(), 8192);
    write(&*part, 4096, 9, 4096).unwrap();
    assert_eq!(read(&*open_url(&url).unwrap(), (1 << 20) + 4096, 4096).unwrap(), vec![9; 4096]);
    assert_eq!(write(&*part, 8192, 1, 512).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(read(&*part, 8192, 512).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    for (options, message) in [
        (DeviceOptions::new().create(SIZE), "cannot create an export"),
        (DeviceOptions::new().offset(100), "not a multiple of the export's sector 512"),
        (DeviceOptions::new().offset(SIZE).len(512), "ends past the export's size"),
        (DeviceOptions::new().offset(SIZE + 512), "ends past the export's size"),
    ] {
        let error = open_with(&url, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_read_only_export_is_opened_read_only_or_not_at_all() {
    let offer = Offer { flags: flags::HAS_FLAGS | flags::READ_ONLY | flags::SEND_FLUSH, ..Offer::default() };
    let server = FakeServer::start(SIZE, offer);
    let error = open_url(&server.url("")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(error.to_string().contains("open it read-only"), "{error}");
    let device = open_with(&server.url(""), &DeviceOptions::new().read_only(true)).unwrap();
    assert!(device.read_only());
    read(&*device, 0, 4096).unwrap();
    device.flush().unwrap();
    assert_eq!(write(&*device, 0, 1, 512).unwrap_err().raw_os_error(), Some(30));
    assert_eq!(device.discard(0, 512).unwrap_err().raw_os_error(), Some(30));
}

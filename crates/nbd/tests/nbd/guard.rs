//! The guard of a volume's owner: what is sent only after it was asked.

use super::*;
use parext4_device::{ReadNow, WriteGuard};
use parking_lot::Mutex;
use std::io::ErrorKind;
use testkit::nbd::{Kind, Seen};

/// Start of the volume in the export.
const BASE: u64 = 64 << 10;
/// Offset in the volume that the guard reads.
const BLOCK: u64 = 8192;

/// A guard that says what the test wants.
#[derive(Debug, Default)]
struct Owner(Mutex<OwnerState>);

#[derive(Debug, Default)]
struct OwnerState {
    may_write: bool,
    lost: bool,
    /// Number of questions after which writes are not permitted any more.
    left: Option<u32>,
    /// The byte that each question found at [`BLOCK`].
    found: Vec<u8>,
}

impl WriteGuard for Owner {
    fn may_write(&self) -> bool {
        let mut state = self.0.lock();
        if let Some(left) = state.left {
            state.may_write = left > 0;
            state.left = Some(left.saturating_sub(1));
        }
        state.may_write
    }

    fn may_resend(&self, read: &mut ReadNow<'_>) -> io::Result<()> {
        let mut block = [0; 4096];
        read(BLOCK, &mut block)?;
        let mut state = self.0.lock();
        state.found.push(block[4095]);
        if state.lost {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "another machine has the volume"));
        }
        state.may_write = true;
        Ok(())
    }
}

/// Opens the export with a guard that permits writes, after bytes were written where the guard
/// reads.
fn guarded() -> (FakeServer, Arc<dyn Device>, Arc<Owner>) {
    let server = FakeServer::start(SIZE, Offer::default());
    let device = open_with(&server.url("&connections=2"), &DeviceOptions::new().offset(BASE)).unwrap();
    let owner = Arc::new(Owner::default());
    owner.0.lock().may_write = true;
    device.guard_writes(Arc::clone(&owner) as Arc<dyn WriteGuard>);
    write(&*device, BLOCK, 7, 4096).unwrap();
    device.flush().unwrap();
    server.take_log();
    (server, device, owner)
}

fn writes(log: &[Seen]) -> usize {
    log.iter().filter(|seen| seen.kind == Kind::Write).count()
}

#[test]
fn a_write_that_is_late_is_sent_after_the_owner_has_read() {
    let (server, device, owner) = guarded();
    owner.0.lock().may_write = false;
    assert_eq!(read(&*device, BLOCK, 1024).unwrap(), [7; 1024], "reads need no permission");
    assert!(owner.0.lock().found.is_empty());
    write(&*device, 0, 1, 4096).unwrap();
    assert_eq!(owner.0.lock().found, [7]);
    let log = server.take_log();
    let first = log.iter().position(|seen| seen.kind == Kind::Write).unwrap();
    let asked = log.iter().rposition(|seen| (seen.kind, seen.offset) == (Kind::Read, BASE + BLOCK)).unwrap();
    assert!(asked < first && log[asked].len == 4096, "{log:?}");
    // Not only writes.
    owner.0.lock().may_write = false;
    device.flush().unwrap();
    owner.0.lock().may_write = false;
    device.discard(0, 4096).unwrap();
    assert_eq!(owner.0.lock().found, [7; 3]);
}

#[test]
fn the_requests_of_an_owner_that_lost_its_volume_are_not_sent() {
    let (server, device, owner) = guarded();
    *owner.0.lock() = OwnerState { lost: true, ..OwnerState::default() };
    let error = write(&*device, 0, 1, 4096).unwrap_err();
    assert!(error.to_string().contains("another machine has the volume"), "{error}");
    assert!(
        write(&*device, 0, 1, 4096).is_err() && device.flush().is_err() && device.discard(0, 512).is_err()
    );
    let log = server.take_log();
    assert!(log.iter().all(|seen| matches!(seen.kind, Kind::Read | Kind::Disconnect)), "{log:?}");
}

#[test]
fn answered_writes_are_not_sent_again_by_an_owner_that_lost_its_volume() {
    for lost in [false, true] {
        let (server, device, owner) = guarded();
        write(&*device, 0, 1, 4096).unwrap();
        assert_eq!(writes(&server.take_log()), 1);
        owner.0.lock().lost = lost;
        server.restart();
        assert_eq!(read(&*device, 0, 512).is_err(), lost);
        assert_eq!(writes(&server.take_log()), usize::from(!lost));
    }
}

/// A machine may be stopped between two system calls.
#[test]
fn each_system_call_that_sends_writes_asks() {
    let (server, device, owner) = guarded();
    *owner.0.lock() = OwnerState { lost: true, left: Some(1), ..OwnerState::default() };
    let mut queue = open_queue(&device, 200);
    for token in 0..200 {
        queue.submit(write_request(token, token * 512, 1, 512));
    }
    // One call sends at most 256 buffers: the heads and the bytes of 128 writes.
    assert!(finish(&mut *queue).iter().any(|done| done.result.is_err()));
    let sent = writes(&server.take_log());
    assert!(sent <= 128, "{sent} writes were sent after one question");
}

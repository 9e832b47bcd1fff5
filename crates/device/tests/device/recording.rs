//! Tests of `RecordingDevice`: the recorded calls, and the states that a crash may leave.

use super::{read, write};
use parext4_device::{Device, Event, MemDevice, RecordingDevice, forward_device};
use std::io;
use std::sync::{Arc, Barrier};

fn first_bytes(device: &MemDevice, sectors: u64) -> Vec<u8> {
    (0..sectors).map(|sector| read(device, sector * 512, 512).unwrap()[0]).collect()
}

/// Sector 0 holds 9; then: write 1 | flush | write 2, discard 0, write 3 | flush | write 4.
fn recorded() -> (MemDevice, RecordingDevice) {
    let medium = MemDevice::new(64 << 10);
    write(&medium, 0, &[9; 512]).unwrap();
    let base = medium.fork();
    let device = RecordingDevice::new(Arc::new(medium));
    let put = |sector: u64, byte| write(&device, sector * 512, &[byte; 512]).unwrap();
    put(1, 1);
    device.flush().unwrap();
    put(2, 2);
    device.discard(0, 512).unwrap();
    put(3, 3);
    device.flush().unwrap();
    put(4, 4);
    (base, device)
}

#[test]
fn prefixes() {
    let (base, device) = recorded();
    assert_eq!(device.events(), 7);
    let states = [
        [9, 0, 0, 0, 0],
        [9, 1, 0, 0, 0],
        [9, 1, 0, 0, 0],
        [9, 1, 2, 0, 0],
        [0, 1, 2, 0, 0],
        [0, 1, 2, 3, 0],
        [0, 1, 2, 3, 0],
        [0, 1, 2, 3, 4],
    ];
    let walking = base.fork();
    for (n, state) in states.iter().enumerate() {
        assert_eq!(first_bytes(&device.replay_prefix(&base, n), 5), state, "prefix {n}");
        assert_eq!(first_bytes(&walking, 5), state, "walk {n}");
        device.replay_onto(&walking, n..n + 1);
    }
    assert_eq!(first_bytes(&base, 5), states[0]);
}

#[test]
fn what_a_crash_may_lose_lies_in_one_epoch() {
    let (base, device) = recorded();
    assert_eq!(device.flush_epochs(), [0..1, 2..5, 6..7]);
    let mut asked = Vec::new();
    let state = device.replay_epoch_subset(&base, 1, |index| {
        asked.push(index);
        index == 4
    });
    assert_eq!(asked, [2, 3, 4]);
    assert_eq!(first_bytes(&state, 5), [9, 1, 0, 3, 0]);
    assert_eq!(first_bytes(&device.replay_epoch_subset(&base, 0, |_| false), 5), [9, 0, 0, 0, 0]);
    assert_eq!(first_bytes(&device.replay_epoch_subset(&base, 2, |_| true), 5), [0, 1, 2, 3, 4]);
}

/// A device whose flush waits for the test twice, so that the test can write while it runs.
#[derive(Debug)]
struct SlowFlush(MemDevice, Barrier);

impl Device for SlowFlush {
    forward_device!(this => this.0; size, sector_size, read_only, read_at, write_at, discard);

    fn flush(&self) -> io::Result<()> {
        self.1.wait();
        self.1.wait();
        Ok(())
    }
}

#[test]
fn a_flush_does_not_cover_a_write_that_completes_while_it_runs() {
    let slow = Arc::new(SlowFlush(MemDevice::new(64 << 10), Barrier::new(2)));
    let device = RecordingDevice::new(slow.clone());
    write(&device, 0, &[1; 512]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| device.flush().unwrap());
        slow.1.wait();
        write(&device, 512, &[2; 512]).unwrap();
        slow.1.wait();
    });
    assert!(matches!(device.log()[2], Event::Flush { covers: 1 }));
    assert_eq!(device.flush_epochs(), [0..2, 1..3]);
    let base = MemDevice::new(64 << 10);
    assert_eq!(first_bytes(&device.replay_epoch_subset(&base, 1, |_| false), 2), [1, 0]);
    assert_eq!(first_bytes(&device.replay_epoch_subset(&base, 0, |index| index == 1), 2), [0, 2]);
}

#[test]
fn failures_leave_no_event() {
    let device = RecordingDevice::new(Arc::new(MemDevice::new(4096)));
    assert!(write(&device, 4096, &[1; 512]).is_err());
    assert!(device.discard(1, 1).is_err());
    assert_eq!(device.events(), 0);
}

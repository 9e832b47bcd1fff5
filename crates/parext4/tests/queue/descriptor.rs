//! Waits on a queue's descriptor, as in an event loop.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::scope;

use parext4::{Completion, IoQueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::test_volume::{Kind, TestVolume, WAIT, contents, harvest_all, read, write};
use testkit::volume::DirectFiles as _;

/// Wakes of a test that sends each after the last was seen.
const ROUNDS: u32 = 100_000;

/// Waits until the queue's descriptor is readable.
fn wait(queue: &IoQueue) {
    let descriptor = queue.descriptor().expect("a ring");
    let mut events = [PollFd::new(&descriptor, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
    loop {
        match poll(&mut events, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            readable => {
                return assert_eq!(readable, Ok(1), "the queue does not make its descriptor readable");
            }
        }
    }
}

/// Completes all operations, and blocks only on the descriptor.
fn complete_all(queue: &mut IoQueue) -> Vec<Completion> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        if queue.arm(&mut done).unwrap() {
            wait(queue);
        }
    }
    done
}

/// Returns a volume whose queues are rings; `None` if the kernel has none.
fn volume_with_rings() -> Option<TestVolume> {
    let test = TestVolume::new(Kind::Uring, 4096);
    if test.volume.io_queue(1).descriptor().is_some() {
        return Some(test);
    }
    testkit::skip_allowed("the kernel has no io_uring");
    None
}

#[test]
fn only_a_ring_has_a_descriptor() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 4096);
        let mut queue = test.volume.io_queue(4);
        assert!(kind == Kind::Uring || queue.descriptor().is_none(), "{kind:?}");
        // Harvests all the same.
        let file = test.volume.create_direct("/file").unwrap();
        queue.submit(&file, write(&[1; 4096], 0), 0, WAIT);
        let mut done = Vec::new();
        while done.is_empty() {
            queue.arm(&mut done).unwrap();
        }
        assert_eq!(done[0].result.as_ref().ok(), Some(&4096), "{kind:?}");
        drop((queue, file));
        test.close();
    }
}

#[test]
fn a_completion_makes_the_descriptor_readable() {
    let Some(test) = volume_with_rings() else { return };
    let file = test.volume.create_direct("/file").unwrap();
    let mut queue = test.volume.io_queue(4);
    for round in 0..50 {
        // More than the ring has room for, and overlapping ones, of which one waits for the other.
        for nth in 0..24 {
            queue.submit(&file, write(&[round; 4096], nth % 16 * 4096), nth, WAIT);
        }
        assert_eq!(complete_all(&mut queue).len(), 24);
    }
    assert!(contents(&file) == [49; 16 * 4096]);
    drop((queue, file));
    test.close();
}

#[test]
fn each_wake_makes_the_descriptor_readable() {
    let Some(test) = volume_with_rings() else { return };
    let mut queue = test.volume.io_queue(4);
    let waker = queue.waker();
    for _ in 0..100 {
        let mut done = Vec::new();
        while !queue.arm(&mut done).unwrap() {}
        scope(|scope| {
            scope.spawn(|| waker.wake());
            wait(&queue);
        });
        // The wake may come before or after this, and is reported once.
        while queue.arm(&mut done).unwrap() {
            wait(&queue);
        }
    }
    drop(queue);
    test.close();
}

#[test]
fn a_range_that_another_thread_releases_makes_the_descriptor_readable() {
    let Some(test) = volume_with_rings() else { return };
    let file = test.volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    let stop = AtomicBool::new(false);
    scope(|scope| {
        for byte in 2..4 {
            let (file, stop) = (&file, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    file.write_all_at(&[byte; 8192], 0).unwrap();
                }
            });
        }
        let mut queue = test.volume.io_queue(4);
        for round in 0..1000 {
            queue.submit(&file, write(&[4; 4096], 0), 0, WAIT);
            queue.submit(&file, read(8192, 0), 1, WAIT);
            let done = complete_all(&mut queue);
            assert_eq!(done.len(), 2, "round {round}");
            for completion in done {
                completion.result.unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(file);
    test.close();
}

#[test]
fn a_harvest_that_blocks_after_arming_sees_earlier_wakes() {
    let Some(test) = volume_with_rings() else { return };
    let file = test.volume.create_direct("/file").unwrap();
    let mut queue = test.volume.io_queue(4);
    // Held until it is harvested, so the second queue's write waits.
    let mut holder = test.volume.io_queue(4);
    holder.submit(&file, write(&[1; 4096], 0), 0, WAIT);
    queue.submit(&file, write(&[2; 4096], 0), 1, WAIT);
    let mut done = Vec::new();
    while !queue.arm(&mut done).unwrap() {}
    queue.waker().wake();
    queue.harvest(&mut done).unwrap();
    assert!(done.is_empty(), "only the wake has ended the harvest");
    harvest_all(&mut holder);
    assert_eq!(complete_all(&mut queue).len(), 1);
    assert!(contents(&file) == [2; 4096]);
    drop((holder, queue, file));
    test.close();
}

/// Each wake comes while the queue's thread arms, waits or harvests.
#[test]
fn no_wake_is_lost_while_the_queue_is_armed() {
    let Some(test) = volume_with_rings() else { return };
    let mut queue = test.volume.io_queue(4);
    let waker = queue.waker();
    let (sent, seen) = (AtomicU32::new(0), AtomicU32::new(0));
    scope(|scope| {
        scope.spawn(|| {
            for nth in 1..=ROUNDS {
                sent.store(nth, Ordering::Release);
                waker.wake();
                while seen.load(Ordering::Acquire) < nth {
                    std::hint::spin_loop();
                }
            }
        });
        let mut done = Vec::new();
        loop {
            let last = sent.load(Ordering::Acquire);
            seen.store(last, Ordering::Release);
            if last == ROUNDS {
                break;
            }
            if queue.arm(&mut done).unwrap() {
                wait(&queue);
            }
        }
    });
    drop(queue);
    test.close();
}

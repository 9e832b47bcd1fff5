//! Operations that wait for ranges held by other threads and queues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::{DirectFile, IoRequest};

use super::test_volume::{Kind, TestVolume, WAIT, append, contents, harvest_all, read, write};
use testkit::device::GatedDevice;
use testkit::rng::Rng;
use testkit::volume::DirectFiles as _;
use testkit::watchdog::Watchdog;

#[test]
fn a_queue_asleep_is_woken_by_another_thread() {
    let mut gate = None;
    let test = TestVolume::under(4096, |memory| {
        let device = Arc::new(GatedDevice::new(memory));
        gate = Some(Arc::clone(&device));
        device
    });
    let gate = gate.unwrap();
    let file = test.volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 16384], 0).unwrap();
    let mut queues = [test.volume.io_queue(4), test.volume.io_queue(4)];
    gate.shut();
    std::thread::scope(|scope| {
        let (file, gate) = (&file, &gate);
        scope.spawn(move || file.write_all_at(&[2; 4096], 0).unwrap());
        gate.wait_for(1);
        // Each waits for its predecessor: a caller, a queue, another queue.
        queues[0].submit(file, write(&[3; 8192], 0), 0, WAIT);
        queues[1].submit(file, read(8192, 4096), 0, WAIT);
        queues[1].submit(file, write(&[4; 4096], 8192), 1, WAIT);
        for queue in &mut queues {
            scope.spawn(move || {
                for completion in harvest_all(queue) {
                    assert_eq!(completion.result.unwrap() % 4096, 0);
                    let buf = completion.buf.unwrap();
                    if completion.token == 0 && buf.len() == 8192 {
                        assert!(buf[..4096] == [3; 4096]);
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        gate.open();
    });
    assert!(contents(&file)[4096..12288] == [[3; 4096], [4; 4096]].concat());
    drop((queues, file));
    test.close();
}

#[test]
fn a_sleeping_queue_is_woken() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 4096);
        let file = test.volume.create_direct("/file").unwrap();
        // Held until it is harvested.
        let mut holder = test.volume.io_queue(4);
        holder.submit(&file, write(&[1; 4096], 0), 0, WAIT);
        let mut queue = test.volume.io_queue(4);
        let waker = queue.waker();
        queue.submit(&file, write(&[2; 4096], 0), 1, WAIT);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut done = Vec::new();
                queue.harvest(&mut done).unwrap();
                assert!(done.is_empty(), "{kind:?}");
            });
            waker.wake();
        });
        harvest_all(&mut holder);
        assert_eq!(harvest_all(&mut queue).len(), 1);
        assert!(contents(&file) == [2; 4096]);
        drop((holder, queue, file));
        test.close();
    }
}

fn pass_around(file: &DirectFile, test: &TestVolume, thread: u64, watchdog: &Watchdog) {
    let mut queue = test.volume.io_queue(4);
    let mut rng = Rng::new(3, thread);
    let deadline = Instant::now() + Duration::from_millis(300);
    let byte = 1 + u8::try_from(thread).unwrap();
    let mut done = Vec::new();
    while Instant::now() < deadline {
        for _ in 0..rng.below(6) {
            let (offset, len) = (rng.below(8) * 512, 512 * (1 + rng.below(8)));
            let bytes = vec![byte; usize::try_from(len).unwrap()];
            let request = match rng.below(5) {
                0 => read(bytes.len(), offset),
                1 => append(&bytes[..512]),
                2 if rng.chance(10) => IoRequest::SyncData,
                _ => write(&bytes, offset),
            };
            queue.submit(file, request, rng.below(4), WAIT);
            if rng.chance(10) {
                queue.cancel(rng.below(4));
            }
        }
        let harvest = || if rng.chance(70) { queue.harvest(&mut done) } else { queue.try_harvest(&mut done) };
        watchdog.watch(usize::try_from(thread).unwrap(), harvest).unwrap();
        if rng.chance(10) {
            queue = test.volume.io_queue(4);
        }
        for completion in done.drain(..) {
            assert!(!matches!(completion.result, Err(ref error) if error.to_errno() != libc_ecanceled()));
        }
    }
}

fn libc_ecanceled() -> i32 {
    parext4::Error::Cancelled.to_errno()
}

/// Queues in many threads and blocking callers, all on the same few blocks; queues are dropped in
/// between.
#[test]
fn ranges_pass_between_queues_and_callers() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 1024);
        let file = test.volume.create_direct("/file").unwrap();
        let watchdog = Watchdog::start("ranges_pass", 3, 6);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (file, test, watchdog) = (&file, &test, &watchdog);
                scope.spawn(move || pass_around(file, test, thread, watchdog));
            }
            for thread in 4..6 {
                let (file, watchdog) = (&file, &watchdog);
                scope.spawn(move || {
                    let deadline = Instant::now() + Duration::from_millis(300);
                    while Instant::now() < deadline {
                        watchdog.watch(thread, || file.write_all_at(&[7; 4096], 512).unwrap());
                    }
                });
            }
        });
        assert!(contents(&file).iter().all(|&byte| byte <= 7), "{kind:?}: foreign bytes");
        drop(file);
        test.close();
    }
}

//! Latencies and cancellation of the queue of a simulated device.

use super::*;
use std::time::Instant;

const MS: Duration = Duration::from_millis(1);

// The tests check lower bounds only, because a busy machine adds any time.

#[test]
fn requests_take_their_time_side_by_side() {
    for (parallel, rounds) in [(1, 6), (2, 3), (6, 1)] {
        let device = simulated(2 * MS, parallel);
        let mut queue = open_queue(&device, 8);
        let start = Instant::now();
        (0..6).for_each(|token| queue.submit(read(token, 0, 512)));
        assert_eq!(finish(&mut *queue).len(), 6);
        assert!(start.elapsed() >= 2 * MS * rounds, "parallel {parallel}");
    }
}

#[test]
fn queues_and_calls_share_the_slots() {
    let device = simulated(3 * MS, 1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| succeed(&mut *open_queue(&device, 4), flush(1)));
            scope.spawn(|| device.flush().unwrap());
        }
    });
    assert!(start.elapsed() >= 12 * MS);
}

#[test]
fn a_request_reaches_the_inner_device_when_it_is_due() {
    let inner = memory();
    let profile = SimProfile::new(MS, 1).write_latency(20 * MS).flush_latency(400 * MS);
    let device: Arc<dyn Device> = Arc::new(SimDevice::new(inner.clone(), profile));
    let mut queue = open_queue(&device, 4);
    queue.submit(write(1, 0, &[1; 512]));
    queue.submit(flush(2));
    queue.submit(write(3, 512, &[1; 512]));
    queue.harvest(false, &mut Vec::new()).unwrap();
    assert_eq!(super::super::read(&inner, 0, 512).unwrap()[0], 0);
    assert!(queue.cancel(3), "waits for a slot");
    let mut done = Vec::new();
    queue.harvest(true, &mut done).unwrap();
    queue.harvest(true, &mut done).unwrap();
    assert!(done.iter().any(|done| done.token == 1 && done.result.is_ok()));
    assert_eq!(super::super::read(&inner, 0, 512).unwrap()[0], 1);
    assert!(!queue.cancel(2), "is on the device");
    finish(&mut *queue);
    assert_eq!(super::super::read(&inner, 512, 512).unwrap()[0], 0);
}

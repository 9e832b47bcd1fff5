//! Tests of `SimDevice`: the latencies that it simulates.

use super::{read, write};
use parext4_device::{Device, MemDevice, SimDevice, SimProfile};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn device(parallel: usize) -> SimDevice {
    let ms = Duration::from_millis;
    let profile = SimProfile::new(ms(2), parallel).write_latency(ms(3)).flush_latency(ms(5));
    SimDevice::new(Arc::new(MemDevice::new(1 << 20)), profile)
}

// The tests check lower bounds only, because a busy machine adds any time.

#[test]
fn each_request_takes_its_time() {
    let device = device(8);
    let takes = |request: &dyn Fn()| {
        let start = Instant::now();
        request();
        start.elapsed()
    };
    assert!(takes(&|| write(&device, 0, &[1; 512]).unwrap()) >= Duration::from_millis(3));
    assert!(takes(&|| assert_eq!(read(&device, 0, 512).unwrap()[0], 1)) >= Duration::from_millis(2));
    assert!(takes(&|| device.flush().unwrap()) >= Duration::from_millis(5));
    assert!(takes(&|| device.discard(0, 512).unwrap()) >= Duration::from_millis(3));
}

#[test]
fn the_queue_is_as_deep_as_asked() {
    for (parallel, rounds) in [(0, 6), (1, 6), (2, 3)] {
        let device = device(parallel);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| read(&device, 0, 512).unwrap());
            }
        });
        assert!(start.elapsed() >= Duration::from_millis(2) * rounds, "parallel {parallel}");
    }
}

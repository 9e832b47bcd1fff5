//! Tests of `SimDevice`: the latencies that it simulates.

use super::{read, write};
use parext4_device::{Device, MemDevice, SimDevice, SimProfile};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn device(parallel: usize) -> SimDevice {
    let profile = SimProfile {
        read_latency: Duration::from_millis(2),
        write_latency: Duration::from_millis(3),
        flush_latency: Duration::from_millis(5),
        parallel,
    };
    SimDevice::new(Arc::new(MemDevice::new(1 << 20)), profile)
}

// Lower bounds only: how long a busy machine takes on top is not ours to say.

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

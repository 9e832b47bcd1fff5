//! Devices without a native queue, which threads serve.

use super::*;
use parext4_device::{Event, FaultKind, RecordingDevice};
use std::io::{self, IoSlice, IoSliceMut};

#[test]
fn the_faults_of_a_device_are_results() {
    let device = Arc::new(FaultDevice::new(memory(), FaultPlan::default()));
    let mut queue = open_queue(&(device.clone() as Arc<dyn Device>), 4);
    for (kind, request) in [
        (FaultKind::Reads, read as fn(u64, u64, usize) -> Request),
        (FaultKind::Writes, |token, offset, len| write(token, offset, &pattern(0, len))),
        (FaultKind::Flushes, |token, _, _| flush(token)),
    ] {
        device.arm(FaultPlan::at(3).kind(kind));
        (0..8).for_each(|token| queue.submit(request(token, token * 4096, 4096)));
        let failed: Vec<_> = finish(&mut *queue).into_iter().filter_map(|done| done.result.err()).collect();
        let codes: Vec<_> = failed.iter().map(io::Error::raw_os_error).collect();
        assert_eq!(codes, [Some(5)]);
    }
}

#[test]
fn a_recording_has_the_requests_of_queues() {
    let device = Arc::new(RecordingDevice::new(memory()));
    let mut queue = open_queue(&(device.clone() as Arc<dyn Device>), 4);
    succeed(&mut *queue, write(1, 4096, &[1; 512]));
    succeed(&mut *queue, flush(2));
    assert!(matches!(&device.log()[..], [Event::Write { offset: 4096, .. }, Event::Flush { covers: 1 }]));
}

/// A device that panics when it is flushed.
#[derive(Debug)]
struct Panics;

impl Device for Panics {
    fn size(&self) -> u64 {
        SIZE
    }
    fn sector_size(&self) -> u32 {
        512
    }
    fn read_only(&self) -> bool {
        false
    }
    fn read_at(&self, _: u64, _: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        Ok(())
    }
    fn write_at(&self, _: u64, _: &[IoSlice<'_>]) -> io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        panic!("this device panics on purpose")
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_device_that_panics_fails_its_request() {
    let mut queue = open_queue(&(Arc::new(Panics) as Arc<dyn Device>), 1);
    let error = one(&mut *queue, flush(1)).result.unwrap_err();
    assert!(error.to_string().contains("panicked"));
    succeed(&mut *queue, read(2, 0, 512));
}

//! Reads at the end of a file that grows while they write back dirty pages in their range.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::{DirectFile, File};

use super::test_volume::{TestVolume, WAIT, harvest_all, read};
use testkit::device::GatedDevice;
use testkit::volume::{DirectFiles as _, untimed};

const PAGE: usize = 4096;

/// Makes a volume whose writes can be caught, with a page cache of 256 KiB.
fn gated() -> (TestVolume, Arc<GatedDevice>) {
    let mut gate = None;
    let options = untimed().cache_bytes(256 << 10);
    let test = TestVolume::under_with(4096, &options, |memory| {
        let device = Arc::new(GatedDevice::new(memory));
        gate = Some(Arc::clone(&device));
        device
    });
    (test, gate.unwrap())
}

/// Reads 64 pages through a queue, from a file of one dirty page. While the read writes that page
/// back, `grow` extends the file; then the read continues. Returns the bytes that it read.
fn read_while(gate: &GatedDevice, test: &TestVolume, buffered: &File, grow: impl FnOnce()) -> Vec<u8> {
    std::thread::scope(|scope| {
        let file: &DirectFile = buffered.direct();
        let reader = scope.spawn(|| {
            let mut queue = test.volume.io_queue(4);
            queue.submit(file, read(64 * PAGE, 0), 1, WAIT);
            let completion = harvest_all(&mut queue).pop().unwrap();
            let count = usize::try_from(completion.result.unwrap()).unwrap();
            completion.buf.unwrap()[..count].to_vec()
        });
        gate.wait_for(1);
        grow();
        gate.release_first();
        // If the read needs a range that a caught writer holds, it continues when the writer does.
        let deadline = Instant::now() + Duration::from_millis(300);
        while !reader.is_finished() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        gate.open();
        reader.join().unwrap()
    })
}

#[test]
fn a_read_returns_nothing_of_a_write_past_its_range() {
    let (test, gate) = gated();
    let buffered = test.volume.create_direct("/file").unwrap().buffered().unwrap();
    buffered.write_all_at(&[1; PAGE], 0).unwrap();
    gate.catch_writes(1);
    let seen =
        read_while(&gate, &test, &buffered, || buffered.write_all_at(&[2; 2 * PAGE], PAGE as u64).unwrap());
    let with_the_write = [vec![1; PAGE], vec![2; 2 * PAGE]].concat();
    assert!(seen == [1; PAGE] || seen == with_the_write, "{} bytes that were not written", seen.len());
    drop(buffered);
    test.close();
}

/// A buffered write above the dirty-page limit raises the size in steps while it writes back, and
/// holds its range.
#[test]
fn a_read_does_not_end_inside_a_write() {
    let (test, gate) = gated();
    let buffered = test.volume.create_direct("/file").unwrap().buffered().unwrap();
    buffered.write_all_at(&[1; PAGE], 0).unwrap();
    gate.catch_writes(2);
    let end = 49 * PAGE;
    let seen = std::thread::scope(|scope| {
        read_while(&gate, &test, &buffered, || {
            scope.spawn(|| buffered.write_all_at(&[2; 48 * PAGE], PAGE as u64).unwrap());
            // The writer writes back its first part.
            gate.wait_for(2);
            assert!(
                (PAGE + 1..end).contains(&usize::try_from(buffered.size()).unwrap()),
                "a part of the write is visible"
            );
        })
    });
    assert!([PAGE, end].contains(&seen.len()), "the read ended at {}, where no write did", seen.len());
    drop(buffered);
    test.close();
}
